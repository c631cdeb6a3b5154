"""Work whose rounding must not depend on the number of threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch and linear algebra in a single thread, and afterwards as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """So many threads of PyTorch, and afterwards as before; None leaves them as they are."""
    if number is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)

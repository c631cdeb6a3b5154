"""Context managers for the number of threads."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache

import torch
from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    """Return the thread pools of this process; finding them takes milliseconds."""
    return ThreadpoolController()


def one_algebra_thread() -> AbstractContextManager[None]:
    """Use one thread for linear algebra in a block."""
    return _controller().limit(limits=1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread for PyTorch and linear algebra, so that rounding does not depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with one_algebra_thread():
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Set the number of PyTorch threads for a block; None does not change it."""
    if number is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)

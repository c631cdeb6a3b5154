"""Context managers for the number of threads; PyTorch is imported when it is used."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache

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
    with torch_threads(1), one_algebra_thread():
        yield


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Set the number of PyTorch threads for a block; None does not change it."""
    if number is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)

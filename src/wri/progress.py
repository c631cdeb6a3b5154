"""How long work says how far it is."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (done, of)."""


def silent(done: int, of: int) -> None:
    """For work that nobody watches."""


def part(progress: Progress, n: int, parts: int) -> Progress:
    """Progress of the nth of several equal parts as progress of the whole."""
    return lambda done, of: progress(n * of + done, parts * of)

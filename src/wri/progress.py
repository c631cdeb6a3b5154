"""Progress callbacks."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (done, of)."""


def silent(done: int, of: int) -> None:
    """Ignore progress.

    Parameters
    ----------
    done : int
        Amount of work done.
    of : int
        Amount of work in all.
    """


def part(progress: Progress, n: int, parts: int) -> Progress:
    """Return the progress of the nth of several equal parts as progress of the whole."""
    return lambda done, of: progress(n * of + done, parts * of)

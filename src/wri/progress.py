"""Progress callbacks, and a bar on the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]
"""Called with (done, of)."""


def silent(done: int, of: int) -> None:
    """Ignore progress."""


def part(progress: Progress, n: int, parts: int) -> Progress:
    """Return the progress of the nth of several equal parts as progress of the whole."""
    return lambda done, of: progress(n * of + done, parts * of)


@contextmanager
def progress_bar(title: str, shown: bool) -> Iterator[Progress]:
    """Show a bar on standard error while the block runs, if `shown`."""
    if not shown:
        yield silent
        return
    from rich.console import Console
    from rich.progress import Progress as RichProgress

    with RichProgress(console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)

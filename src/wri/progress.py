"""Progress callbacks: a bar on the terminal, lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

EVERY = 30.0  # seconds between two lines
LEAST = 0.01  # share of the work from which the rest can be estimated

Progress = Callable[[int, int], None]
"""Called with (done, of)."""


def silent(done: int, of: int) -> None:
    """Ignore progress."""


def part(progress: Progress, n: int, parts: int) -> Progress:
    """Return the progress of the nth of several equal parts as progress of the whole."""
    return lambda done, of: progress(n * of + done, parts * of)


class ProgressLines:
    """Progress as a line on standard error every half minute, for logs and notebooks."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._began = self._last = monotonic()

    def __call__(self, done: float, of: float) -> None:
        now = monotonic()
        if now - self._last < EVERY or not 0 < done <= of:
            return
        self._last = now
        text = f"{self.title}: {done / of:.0%}"
        if done > LEAST * of:
            left = (now - self._began) * (of - done) / done
            text += f", about {f'{left:.0f} s' if left < 90 else f'{left / 60:.0f} min'} left"
        print(text, file=sys.stderr, flush=True)


@contextmanager
def progress_bar(title: str, shown: bool) -> Iterator[Progress]:
    """Show a bar on standard error while the block runs, if `shown`; lines if it is no terminal."""
    if not shown:
        yield silent
        return
    from rich.console import Console
    from rich.progress import Progress as RichProgress

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield ProgressLines(title)
        return
    with RichProgress(console=console) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)

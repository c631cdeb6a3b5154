"""Progress bar on the terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress as RichProgress

from wri.progress import Progress, silent


@contextmanager
def progress_bar(title: str, shown: bool) -> Iterator[Progress]:
    """Show a bar on standard error while the block runs, if `shown`."""
    if not shown:
        yield silent
        return
    with RichProgress(console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)

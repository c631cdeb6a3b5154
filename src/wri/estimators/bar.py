"""A progress bar on the terminal for those who ask for one."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress as RichProgress

from wri.progress import Progress, silent


@contextmanager
def progress_bar(title: str, shown: bool) -> Iterator[Progress]:
    """A bar on standard error while the block runs, or nothing."""
    if not shown:
        yield silent
        return
    with RichProgress(console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)

"""Progress outside of a terminal."""

from wri import progress
from wri.cli.console import ProgressBar
from wri.progress import ProgressLines, progress_bar


def pass_time(monkeypatch):
    """A clock that moves ten seconds with every look."""
    now = iter(range(0, 10_000, 10))
    monkeypatch.setattr(progress, "monotonic", lambda: float(next(now)))


def test_a_line_every_half_minute(monkeypatch, capsys):
    pass_time(monkeypatch)
    lines = ProgressLines("sweep")
    for done in range(1, 13):
        lines(done, 100)
    for _ in range(3):
        lines(1, 1000)
    assert capsys.readouterr().err.splitlines() == [
        f"sweep: {done}%, about {minutes} min left"
        for done, minutes in ((3, 16), (6, 16), (9, 15), (12, 15))
    ] + ["sweep: 0%"]


def test_bars_become_lines_where_they_would_not_be_seen(monkeypatch, capsys):
    pass_time(monkeypatch)
    with progress_bar("Training", True) as report:
        for done in range(4):
            report(done, 4)
    assert capsys.readouterr().err == "Training: 50%, about 30 s left\n"
    with progress_bar("Training", False) as report:
        report(3, 4)
    with ProgressBar("fitting") as bar:
        for done in range(4):
            bar.step(done, 4)
    assert "fitting: 50%, about 30 s left\n" in capsys.readouterr().err

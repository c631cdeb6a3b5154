"""Output, progress bars, messages and lists on the command line."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from textwrap import fill
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from wri.cli.options import SELECTIONS
from wri.errors import InputError
from wri.progress import ProgressLines

if TYPE_CHECKING:
    from wri.report.page import PageTable

_TERMINAL = sys.stdout is not None and sys.stdout.isatty()
console = Console(width=None if _TERMINAL else 200)  # tables in logs are not wrapped
messages = Console(stderr=True)
WIDTH = 80  # characters of a line
PIPE_CLOSED = 141  # 128 + SIGPIPE, as for other commands


class CheckedStream:
    """Stream whose failures become InputErrors; a closed pipe ends the command silently."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._checked():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._checked():
            self._stream.flush()

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError as error:  # the reader, such as head, has seen enough
            _discard(self._stream)
            raise SystemExit(PIPE_CLOSED) from error
        except OSError as error:
            _discard(self._stream)
            raise InputError(
                f"the output cannot be written: {error.strerror}; send it elsewhere"
            ) from error


def _discard(stream: TextIO) -> None:
    """Send the rest of a stream to nowhere, so that the end of the process finds no error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def checked_output() -> Iterator[None]:
    """Print "?" for characters that an encoding lacks, and turn failed writes into errors."""
    if sys.stdout is None:
        raise InputError("the standard output is closed; send it to a file or to /dev/null")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    with redirect_stdout(cast(TextIO, CheckedStream(sys.stdout))):
        try:
            yield
        finally:
            sys.stdout.flush()


def echo(text: str) -> None:
    """Print a line of the results."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def echo_wrapped(text: str, first: str = "") -> None:
    """Print a paragraph of the results; `first` begins its first line and indents the others."""
    indent = " " * len(first)
    echo(fill(text, WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False))


def show_table(table: "PageTable", wide: bool = False, most: int | None = None) -> None:
    """Print a table without lines, its first column to the left; `wide` fills the screen."""
    shown = Table(box=None, padding=(0, 2, 0, 0), width=WIDTH if wide else None)
    for place, head in enumerate(table.columns):
        shown.add_column(Text(head), justify="right" if place else "left", no_wrap=not place)
    for row in table.rows[:most]:
        shown.add_row(*(Text(str(cell)) for cell in row))
    console.print(shown, highlight=False)


class ProgressBar(Progress):
    """Bar of one task on a terminal; elsewhere a line every half minute."""

    def __init__(self, title: str) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        super().__init__(*columns, console=messages, transient=True)
        self._task = self.add_task(title, total=None)
        self._lines = ProgressLines(title)

    def step(self, done: float, of: float) -> None:
        self.update(self._task, completed=done, total=of)
        if not self.console.is_terminal:
            self._lines(done, of)

    def describe(self, text: str) -> None:
        self.update(self._task, description=text)
        self._lines.title = text


def print_note(text: str) -> None:
    """Print a line beside the results."""
    messages.print(text, soft_wrap=True, highlight=False, markup=False)


def show_warning(message: Warning | str, *place: object, **more: object) -> None:
    """Print a warning as one line, without the place in the code."""
    print_note(f"warning: {message}")


def print_error(text: str) -> None:
    messages.print(f"[bold red]wri:[/] {escape(text)}", soft_wrap=True, highlight=False)


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """End on Ctrl-C and SIGTERM with a message; nothing has been written yet."""
    try:
        yield
    except KeyboardInterrupt:
        print_note("stopped; nothing was written")
        raise


_LISTS = (
    *("--datasets", "--algorithms", "--test-envs", "--selection", "--set", "--record"),
    *("--number", "--category", "--drop", "--predictors"),
)


def repeat_lists(arguments: list[str]) -> list[str]:
    """Convert `--algorithms erm wri` and `--algorithms erm,wri` to repeated options."""
    spread: list[str] = []
    option, given = "", False
    for argument in [*arguments, "--"]:
        name, equals, value = argument.partition("=")
        if argument.startswith("-") and not argument[1:].isdigit():
            spread += [option] if option and not given else []  # Click reports the missing value
            option, given = (name if name in _LISTS else ""), bool(equals)
            values = value.split(",") if option and equals else []
            spread += [part for each in values for part in (option, each)]
            spread += [] if option else [argument]
        elif option and not (arguments[0] == "results" and argument not in SELECTIONS):
            given = True
            spread += [part for each in argument.split(",") if each for part in (option, each)]
        else:
            spread.append(argument)
    return spread[:-1]

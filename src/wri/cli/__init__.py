"""The command `wri`.

What a command works with is imported when it runs, so that help and errors come at once.
"""

import signal
import sys
from typing import Annotated

import typer

from wri import __version__
from wri.cli import data, reproduce, results, sweep
from wri.cli.console import checked_output, complain, echo, repeat_lists
from wri.errors import InputError, shorten

app = typer.Typer(
    help="Weighted risk invariance: predictors that hold in a new environment.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.add_typer(reproduce.make_app(), name="reproduce")
app.command()(sweep.sweep)
app.command()(results.results)
app.command()(data.data)


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(f"wri {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


def _terminate(number: int, frame: object) -> None:
    raise Terminated


def main() -> None:
    """Entry point: bad input ends with one clear sentence and exit code 2."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        with checked_output():
            app(repeat_lists(sys.argv[1:]))
    except InputError as error:
        complain(str(error))
        sys.exit(2)
    except OSError as error:
        where = "" if error.filename is None else f"{shorten(error.filename)}: "
        complain(f"{where}{error.strerror or error}; check the path, its rights and the disk")
        sys.exit(2)
    finally:
        signal.signal(signal.SIGTERM, before)

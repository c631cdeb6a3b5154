"""The command `wri`.

Commands import their packages when they run, so that help and errors appear without delay.
"""

import atexit
import gc
import signal
import sys
import warnings
from functools import cache
from typing import Annotated, Any

import typer

from wri import __version__
from wri.cli import data, diagnose, fit, predict, reproduce, results, sweep
from wri.cli.console import checked_output, echo, print_error, repeat_lists, show_warning
from wri.errors import InputError, LostBackendError, shorten

HELP_OPTIONS = ["-h", "--help"]
app = typer.Typer(
    context_settings={"help_option_names": HELP_OPTIONS},  # for all commands
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
TABLE, PAPER, DATA = "Your own table", "The paper, and sweeps", "Data"
app.command(rich_help_panel=TABLE)(fit.fit)
app.command(rich_help_panel=TABLE)(predict.predict)
app.command(rich_help_panel=TABLE)(predict.site)
app.command(rich_help_panel=TABLE)(diagnose.diagnose)
app.add_typer(reproduce.make_app(), name="reproduce", rich_help_panel=PAPER)
app.command(rich_help_panel=PAPER)(sweep.sweep)
app.add_typer(results.make_app(), name="results", rich_help_panel=PAPER)
app.command(rich_help_panel=DATA)(data.data)


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
    """Weighted risk invariance: models for new sites, and what to expect of them there.

    Start with a table of rows from several sites:

    `wri data hospitals --write hospitals.csv`

    `wri fit hospitals.csv --target sick --env hospital -o model/`

    `wri site model/ hospitals-new.csv`

    `wri predict model/ hospitals-new.csv -o predictions.csv --target sick`

    Exit codes: 0 done, 2 wrong input (one sentence names the problem, the place and the remedy),
    3 Ray was lost, 130 interrupted, 141 the output pipe was closed, 143 terminated.
    `--install-completion` adds completion to your shell.
    """


def make_command() -> Any:
    """Make the command with all commands below it; in the help, flags have no type."""
    command = typer.main.get_command(app)
    pending: list[Any] = [command]
    for each in pending:
        pending += getattr(each, "commands", {}).values()
        context = typer.Context(each, help_option_names=HELP_OPTIONS)
        for option in each.get_params(context):
            if getattr(option, "is_flag", False):
                option.metavar = ""
    return command


@cache
def _collect_less_garbage() -> None:
    """Search for cyclic garbage rarely: among so many modules it takes a second per command."""
    gc.set_threshold(100_000, 20, 20)
    atexit.register(gc.freeze)  # nothing is left to search at the end


def main() -> None:
    """Run the command; wrong input ends with one sentence and exit code 2."""
    _collect_less_garbage()
    terminated = False

    def terminate(number: int, frame: object) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt  # ends the command like Ctrl-C, but for the exit code

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        with checked_output(), warnings.catch_warnings():
            warnings.showwarning = show_warning
            make_command()(repeat_lists(sys.argv[1:]))
    except (KeyboardInterrupt, SystemExit) as end:
        code = end.code if isinstance(end, SystemExit) else 130
        sys.exit(143 if terminated else code)
    except InputError as error:
        print_error(str(error))
        sys.exit(2)
    except LostBackendError as error:
        print_error(str(error))
        sys.exit(3)
    except OSError as error:
        where = "" if error.filename is None else f"{shorten(error.filename)}: "
        print_error(f"{where}{error.strerror or error}; check the path, permissions and the disk")
        sys.exit(2)
    finally:
        signal.signal(signal.SIGTERM, before)

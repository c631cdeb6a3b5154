"""Progress bars, messages and lists on the command line."""

import sys

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Task as BarTask
from rich.text import Text

from wri.cli.names import SELECTIONS

console = Console(width=None if sys.stdout.isatty() else 200)  # tables in logs stay whole
messages = Console(stderr=True)


def make_progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), Rate(), TimeRemainingColumn())
    return Progress(*columns, console=messages, transient=True)


class Rate(ProgressColumn):
    def render(self, task: BarTask) -> Text:
        return Text(f"{task.speed:.3g} steps/s" if task.speed else "")


def update(bar: Progress, task: TaskID, done: int, of: int) -> None:
    bar.update(task, completed=done, total=of)


def say(text: str) -> None:
    """A line beside the results."""
    messages.print(text, soft_wrap=True, highlight=False, markup=False)


def complain(text: str) -> None:
    messages.print(f"[bold red]wri:[/] {escape(text)}", soft_wrap=True, highlight=False)


_LISTS = ("--datasets", "--algorithms", "--test-envs", "--selection", "--set", "--record")


def repeat_lists(arguments: list[str]) -> list[str]:
    """`--algorithms erm wri` and `--algorithms erm,wri` as the option repeated."""
    spread: list[str] = []
    option, given = "", False
    for argument in [*arguments, "--"]:
        name, equals, value = argument.partition("=")
        if argument.startswith("-") and not argument[1:].isdigit():
            spread += [option] if option and not given else []  # without a value: Click says so
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

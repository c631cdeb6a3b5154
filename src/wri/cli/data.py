"""The command `wri data`."""

import json
from typing import Annotated

import typer

from wri.cli.console import echo


def data(
    name: Annotated[
        str | None,
        typer.Argument(
            help="One data set: what it holds, where it was looked for, how to get it.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Which data sets are here, where they were found, and how to get the rest."""
    from wri.datasets.whereabouts import as_lines, one_as_lines, one_dataset, whereabouts

    found = whereabouts() if name is None else one_dataset(name)
    lines = as_lines if name is None else one_as_lines
    echo(json.dumps(found) if as_json else "\n".join(lines(found)))

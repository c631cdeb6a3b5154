"""The command `wri data`."""

import json
from typing import Annotated

import typer

from wri.cli.console import echo


def data(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Which data sets are here, where they were found, and how to get the rest."""
    from wri.datasets.whereabouts import as_lines, whereabouts

    found = whereabouts()
    echo(json.dumps(found) if as_json else "\n".join(as_lines(found)))

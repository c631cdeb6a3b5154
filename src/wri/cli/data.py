"""The command `wri data`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from wri.cli import options
from wri.cli.console import echo
from wri.errors import InputError

WRITABLE = ("hospitals", "simulation", "gaussian2d", "heart")


def data(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show one data set; heart and mnist are fetched if they are not here.",
            show_default=False,
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            help=f"Write a table to this CSV file: {', '.join(WRITABLE)}.", show_default=False
        ),
    ] = None,
    seed: options.Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """List the data sets: what is here, how to get the rest, and their licences.

    `wri data heart` and `wri data mnist` fetch from the public source, compare checksums and keep
    the files in the cache folder.

    Examples:

    `wri data`

    `wri data hospitals --write hospitals.csv`

    Exit codes: 0 done, 2 unknown name, or not here and no network.
    """
    from wri.datasets.catalogue import as_lines, dataset_locations, export_table, one_dataset

    if write is not None:
        if name not in WRITABLE:
            raise InputError(
                f"--write is for the tables {', '.join(WRITABLE)}; name one of them before --write"
            )
        _show_written(name, export_table(name, write, seed), as_json)
        return
    found = dataset_locations() if name is None else one_dataset(name)
    echo(json.dumps(found) if as_json else "\n".join(as_lines(found)))


def _show_written(name: str, files: list[Path], as_json: bool) -> None:
    if as_json:
        echo(json.dumps({"name": name, "files": [str(file) for file in files]}))
        return
    columns = {
        "hospitals": "--target sick --env hospital",
        "heart": "--target disease --env hospital",
    }
    for file in files:
        echo(f"written: {file}")
    echo(f"next: wri fit {files[0]} {columns.get(name, '--target y --env site')} -o model/")

"""Data sets of tables as CSV files, to try things out.

Training sites are written to the named file, and a site to test a model to a second file beside it.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from wri.datasets.builtin import load_builtin
from wri.datasets.environments import Environment
from wri.datasets.heart import load_heart
from wri.datasets.hospitals import REVERSED, hospitals
from wri.errors import InputError, shorten

if TYPE_CHECKING:
    import pandas as pd

ROWS = 500  # of each simulated hospital
COLUMNS = {"hospitals": ("smoking", "marker", "noise"), "gaussian2d": ("invariant", "spurious")}
TARGETS = {"hospitals": "sick"}


def export_table(name: str, path: Path, seed: int = 0) -> list[Path]:
    """Write a data set as CSV.

    Parameters
    ----------
    name
        "hospitals", "simulation", "gaussian2d" or "heart".
    path
        A new file that ends in .csv. For hospitals a second file, `…-new.csv`, has a hospital whose
        marker means the opposite.
    seed
        Of simulated rows.

    Returns
    -------
    list of Path
        The files written.
    """
    if path.suffix.lower() != ".csv":
        raise InputError(f"--write {shorten(path)} must end in .csv")
    if name == "heart":
        tables = {path: load_heart()}
    elif name == "hospitals":
        beside = path.with_name(f"{path.stem}-new.csv")
        tables = {
            path: _frame(name, hospitals(ROWS, seed)),
            beside: _frame(name, [REVERSED.sample(ROWS, seed)]),
        }
    else:
        tables = {path: _frame(name, load_builtin(name, seed))}
    for file in tables:
        if file.exists():
            raise InputError(f"{shorten(file)} exists; name another file, or remove it")
    for file, frame in tables.items():
        frame.to_csv(file, index=False, float_format="%.6g")
    return list(tables)


def _frame(name: str, sites: list[Environment]) -> "pd.DataFrame":
    import pandas as pd

    width = sites[0].x.shape[1]
    columns = list(COLUMNS.get(name, [f"x{k}" for k in range(width)]))
    target, site = TARGETS.get(name, "y"), "hospital" if name == "hospitals" else "site"
    frames = [
        pd.DataFrame(each.x, columns=columns).assign(**{target: each.y, site: each.name})
        for each in sites
    ]
    return pd.concat(frames, ignore_index=True)

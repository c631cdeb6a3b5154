"""Numeric features from a file: CSV, Parquet or NumPy's .npz, with target and environment columns.

Every other column is a feature. Names of environments and classes are the texts of the cells, in
natural order: "2" before "10", "site 2" before "site 10". Rows in messages are counted from 1,
below the header and without blank lines.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from wri.datasets.environments import LabelledFile
from wri.datasets.labels import TASKS, listed_names, read_labels, read_targets
from wri.datasets.table_files import check_names, read_frame
from wri.errors import InputError, check_option, shorten
from wri.rows import first_gap

if TYPE_CHECKING:
    import pandas as pd

FEWEST_ROWS = 2  # per environment, for the batches of every objective


def read_table(
    path: str | Path, target: str, environment: str, task: str | None = None
) -> LabelledFile:
    r"""Read a table of numeric features with a target and an environment per row.

    Parameters
    ----------
    path : path-like
        A text table with a header (.csv, .tsv or .txt), whose delimiter and encoding are detected;
        a .parquet file (needs pyarrow); or a .npz file, in which an array `[n]` is a column and an
        array `[n, D]` named x is the columns x0, x1, ….
    target : str
        Column of targets: texts or numbers.
    environment : str
        Column of the environment of each row.
    task : {"classes", "numbers"} or None, default=None
        "classes": each different target is a class. None: targets are numbers if they are fractions
        with more than 20 different values, or numbers of which most differ.

    Returns
    -------
    table : LabelledFile
        Rows by environment; x is float32 if that loses nothing of the columns' types, else float64.

    Raises
    ------
    InputError
        If the file cannot be used. The message names the column, the row and the remedy.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from wri.datasets import read_table
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "rows.csv")
    ...     _ = path.write_text("age,site,ill\n40,a,0\n50,a,1\n60,b,0\n70,b,1\n")
    ...     table = read_table(path, target="ill", environment="site")
    >>> table.names, table.features, table.classes
    (('a', 'b'), ('age',), ('0', '1'))
    """
    if task is not None:
        check_option("task", task, TASKS)
    if target == environment:
        raise InputError(f"target and environment are both {target!r}; name two columns")
    check = partial(check_names, target=target, environment=environment)
    found = read_frame(path, check, labels=(environment,), texts=(target,))
    features = found.frame
    targets, places = features.pop(target), features.pop(environment)
    return label_rows(Path(path), features, targets, places, task)


def label_rows(
    path: Path | str,
    features: "pd.DataFrame",
    targets: "pd.Series",
    places: "pd.Series",
    task: str | None,
) -> LabelledFile:
    """Return rows by environment; messages name `path` and the columns."""
    target, environment = str(targets.name), str(places.name)
    environments, sites = read_labels(path, environment, places, any_text=True)
    sizes = np.bincount(sites)
    if len(environments) < 2:
        raise InputError(
            f"{path}: column {environment!r} holds only one environment, "
            f"{shorten(environments[0])!r}; at least two are needed: name another column or add "
            "rows of another environment"
        )
    if sizes.min() < FEWEST_ROWS:
        raise InputError(
            f"{path}: environment {shorten(environments[sizes.argmin()])!r} of column "
            f"{environment!r} has {sizes.min()} row; at least {FEWEST_ROWS} are needed: drop or "
            "merge it"
        )
    classes, y = read_targets(path, target, targets, task)
    _check_numbers(path, features)
    order = np.argsort(sites, kind="stable")
    return LabelledFile(
        x=_matrix(features, order),
        y=y[order],
        names=environments,
        sizes=tuple(sizes.tolist()),
        features=tuple(features.columns),
        classes=classes,
    )


def _matrix(features: "pd.DataFrame", rows: np.ndarray) -> np.ndarray:  # [n, D]
    """Return some rows, written column by column to avoid a second copy of a large table."""
    dtype = np.result_type(np.float32, *features.dtypes.unique())
    matrix = np.empty((len(rows), features.shape[1]), dtype)
    for place, (_, column) in enumerate(features.items()):
        matrix[:, place] = column.to_numpy()[rows]
    return matrix


def _check_numbers(path: Path | str, features: "pd.DataFrame") -> None:
    """Refuse cells that are missing or infinite, then columns without numbers."""
    import pandas as pd

    first, cells, texts = "", 0, []
    for name, column in features.items():
        if column.dtype.kind not in "fiub":
            texts.append(name)
        gap = first_gap(column.to_numpy())
        if gap is None:
            continue
        if not cells:
            what = "missing" if gap.kind == "NaN" else "infinite"
            first = f"column {shorten(name)!r}, row {gap.row + 1} is {what}"
        cells += gap.count
    if cells:
        raise InputError(
            f"{path}: {first} ({cells} in all); fill in or drop such rows, or drop the column"
        )
    if texts:
        column = features[texts[0]]
        row = int(pd.to_numeric(column, errors="coerce").isna().to_numpy().argmax())
        cell = shorten(column.iloc[row])
        raise InputError(
            f"{path}: column {shorten(texts[0])!r}, row {row + 1} is {cell!r}, not a "
            f"number; encode or drop {listed_names(texts)}"
        )

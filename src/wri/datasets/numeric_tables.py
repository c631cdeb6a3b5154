"""Numeric features from a file: CSV, Parquet or NumPy's .npz, with target and environment columns.

Every other column is a feature; columns of categories become one column per category. Names of
environments and classes are the texts of the cells, in natural order: "2" before "10", "site 2"
before "site 10". Rows in messages are counted from 1, below the header and without blank lines.
"""

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from wri.datasets.environments import LabelledFile
from wri.datasets.labels import TASKS, listed_names, read_labels, read_targets
from wri.datasets.table_files import check_names, read_frame
from wri.datasets.table_rows import leave_columns_out
from wri.errors import InputError, check_option, shorten
from wri.rows import first_gap

if TYPE_CHECKING:
    import pandas as pd

    from wri.datasets.schema import TableSchema

FEWEST_ROWS = 2  # per environment, for the batches of every objective


def read_table(
    path: str | Path,
    target: str,
    environment: str,
    task: str | None = None,
    *,
    leave_out: Collection[str] = (),
    categories: Collection[str] = (),
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
    leave_out : collection of str, default=()
        Columns that are not used.
    categories : collection of str, default=()
        Columns of categories, encoded as `TableSchema` does: behind the numbers, one column per
        category; rare ones share one.

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
    for name in (target, environment):
        if name in (*leave_out, *categories):
            raise InputError(
                f"column {name!r} is the target or the environment; remove it from --drop and "
                "--category"
            )
    check = partial(check_names, target=target, environment=environment)
    found = read_frame(path, check, labels=(environment,), texts=(target,))
    there = [str(name) for name in found.frame.columns]
    (frame,) = leave_columns_out([found.frame], leave_out, there)
    check(Path(path), list(frame.columns))
    return _table(Path(path), frame, target, environment, task, categories)


def _table(
    path: Path,
    features: "pd.DataFrame",
    target: str,
    environment: str,
    task: str | None,
    categories: Collection[str],
) -> LabelledFile:
    targets, places = features.pop(target), features.pop(environment)
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
    schema = describe_columns([str(name) for name in features.columns], categories)
    _check_numbers(path, features.drop(columns=[*categories]))
    if categories:
        features = _encode(features, schema)
    order = np.argsort(sites, kind="stable")
    return LabelledFile(
        x=_matrix(features, order),
        y=y[order],
        names=environments,
        sizes=tuple(sizes.tolist()),
        features=tuple(features.columns),
        classes=classes,
    )


def describe_columns(names: Collection[str], categories: Collection[str]) -> "TableSchema":
    """Return the schema of a table whose other columns are numbers."""
    from wri.datasets.columns import Column
    from wri.datasets.schema import TableSchema

    unknown = [name for name in categories if name not in names]
    if unknown:
        raise InputError(
            f"--category {listed_names(unknown)}: there is no such column of features; the table "
            f"has {listed_names([*names])}"
        )
    return TableSchema(
        tuple(Column(name, "category" if name in categories else "number") for name in names)
    )


def _encode(features: "pd.DataFrame", schema: "TableSchema") -> "pd.DataFrame":
    """Return numbers, then one column per category, named such as "ward = north"."""
    import pandas as pd
    from sklearn.pipeline import make_pipeline

    from wri.datasets.schema import readable_names

    steps = make_pipeline(*replace(schema, rows=len(features)).make_preprocessing())
    cells = steps.fit_transform(features)
    names = readable_names(steps.get_feature_names_out(), schema.features)
    return pd.DataFrame(cells, columns=list(names))


def _matrix(features: "pd.DataFrame", rows: np.ndarray) -> np.ndarray:  # [n, D]
    """Return some rows, written column by column to avoid a second copy of a large table."""
    dtype = np.result_type(np.float32, *features.dtypes.unique())
    matrix = np.empty((len(rows), features.shape[1]), dtype)
    for place, (_, column) in enumerate(features.items()):
        matrix[:, place] = column.to_numpy()[rows]
    return matrix


def _check_numbers(path: Path, features: "pd.DataFrame") -> None:
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
            f"number; name it in --category or --drop: {listed_names(texts)}"
        )

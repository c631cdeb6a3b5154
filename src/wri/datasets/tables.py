"""Features from a file: CSV, Parquet or NumPy's .npz, with a label and an environment column.

Every other column is a feature. Names of environments and classes are the cells' text, in their
natural order: "2" before "10", "site 2" before "site 10".
Rows in messages are counted from 1, below the header and without blank lines.
"""

import csv
import math
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wri.datasets.archives import UNREADABLE, read_arrays
from wri.datasets.environments import LabelledFile
from wri.errors import InputError, check_option, shorten
from wri.rows import first_gap, order_labels, read_number

if TYPE_CHECKING:
    import pandas as pd

FEWEST_ROWS = 2  # of an environment: every objective's batches need them
MOST_FRACTIONS = 20  # more different labels than this, some of them fractions: a measurement
TASKS = ("classes", "numbers")
SHOWN = 10  # names in a message


class Columns(NamedTuple):
    """What the three formats have in common."""

    features: "pd.DataFrame"
    target: Any  # [n]
    environment: Any  # [n]


def read_table(
    path: str | Path, target: str, environment: str, task: str | None = None
) -> LabelledFile:
    """Read a table of numeric features with a target and an environment in every row.

    Parameters
    ----------
    path
        A .csv with a header, comma-separated, in UTF-8; a .parquet (needs pyarrow); or a .npz,
        where an array `[n]` is a column and an array `[n, D]` named x is the columns x0, x1, ….
    target
        The column of targets: texts or numbers.
    environment
        The column that says where a row was collected.
    task
        "classes", where each different target is a class, or "numbers". By default targets are
        numbers if they are fractions of more than 20 different values, or numbers of which most
        differ.

    Returns
    -------
    LabelledFile
        x is float32 where that loses nothing of the columns' types, otherwise float64.

    Raises
    ------
    InputError
        For anything that cannot be trained on, with the column, the row and the remedy.
    """
    path = _check_path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name one .csv, .parquet or .npz file in it")
    if not path.exists():
        raise InputError(f"{path} does not exist; check the path, or use a built-in data set")
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise InputError(
            f"{path} ends in {path.suffix or 'nothing'!r}; save it as .csv, .parquet or .npz"
        )
    if task is not None:
        check_option("task", task, TASKS)
    if target == environment:
        raise InputError(f"target and environment are both {target!r}; name two columns")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty; write a table to it first")
    read, expected = FORMATS[ending]
    try:
        columns = read(path, target, environment)
        return _table(path, columns, target, environment, task)
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{path} does not fit into memory; read fewer rows or columns") from error
    except UNREADABLE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path} cannot be read as {ending} ({reason}); save it again as {expected}, or "
            "correct its ending"
        ) from error


def _check_path(path: str | Path) -> Path:
    """A path that the system can look up."""
    try:
        Path(path).stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # names that are too long, or hold a null
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{shorten(path)} cannot be read: {reason}; check the path") from error
    return Path(path)


def _read_csv(path: Path, target: str, environment: str) -> Columns:
    import pandas as pd

    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next(filter(None, csv.reader(file, skipinitialspace=True)), [])
    if any("\0" in name for name in header):
        raise ValueError("it is no text")
    _check_names(path, header, target, environment)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
        try:
            frame = pd.read_csv(
                path,
                encoding="utf-8-sig",
                skipinitialspace=True,
                index_col=False,
                low_memory=False,  # pieces of few rows cost wide tables several times their size
                dtype={target: str, environment: str},  # site 007 keeps its zeros
            )
        except pd.errors.ParserWarning as warning:
            raise ValueError(f"rows are longer than the header of {len(header)}") from warning
    return Columns(frame, frame.pop(target), frame.pop(environment))


def _read_parquet(path: Path, target: str, environment: str) -> Columns:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(
            f"{path}: reading Parquet needs pyarrow; `pip install pyarrow`, or save it as .csv"
        ) from error
    with parquet.ParquetFile(path, memory_map=True) as file:
        names = file.schema_arrow.names
        index = [name for name in names if name.startswith("__index_level_")]  # pandas' row names
        _check_names(path, [n for n in names if n not in index], target, environment)
        table = file.read().drop_columns(index)
    table.validate(full=True)  # texts that are no UTF-8, among others
    # plain types whoever wrote the file; arrow's columns are freed as they are converted
    frame = table.to_pandas(ignore_metadata=True, split_blocks=True, self_destruct=True)
    return Columns(frame, frame.pop(target), frame.pop(environment))


def _read_npz(path: Path, target: str, environment: str) -> Columns:
    import pandas as pd

    arrays = read_arrays(path)
    for name, array in arrays.items():
        most = 1 if name in (target, environment) else 2
        if not 1 <= array.ndim <= most:
            raise InputError(
                f"{path}: array {name!r} has the shape {array.shape}; "
                f"make it {'[n]' if most == 1 else '[n] or [n, D]'}"
            )
    rows = {len(array): name for name, array in arrays.items()}
    if len(rows) > 1:
        counts = " and ".join(f"{name!r} {count}" for count, name in rows.items())
        raise InputError(f"{path}: arrays must have equally many rows, not {counts}")
    names = {
        name: [name] if array.ndim == 1 else [f"{name}{d}" for d in range(array.shape[1])]
        for name, array in arrays.items()
    }
    _check_names(path, [each for some in names.values() for each in some], target, environment)
    y, site = arrays.pop(target), arrays.pop(environment)
    frames = [
        pd.DataFrame(array, columns=names[name], copy=False) for name, array in arrays.items()
    ]
    return Columns(pd.concat(frames, axis=1), y, site)


FORMATS = {
    ".csv": (_read_csv, "comma-separated UTF-8 text with one header line"),
    ".parquet": (_read_parquet, "a single Parquet file"),
    ".npz": (_read_npz, "an archive of np.savez"),
}


def _check_names(path: Path, names: Sequence[str], target: str, environment: str) -> None:
    """Refuse what the names alone tell, before the rows are read."""
    if not names:
        raise InputError(f"{path} is empty; write a table to it first")
    nameless = [c for c, name in enumerate(names, start=1) if not name.strip()]
    if nameless:
        raise InputError(
            f"{path}: column {nameless[0]} has no name; name it, or drop it if it holds row "
            "numbers (to_csv(index=False) in pandas)"
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            f"{path}: column {shorten(twice[0])!r} occurs twice; rename or drop one of them"
        )
    for name, option in ((target, "target"), (environment, "environment")):
        if name not in names:
            raise InputError(
                f"{path} has no column {name!r} for the {option}; it has {_listed(names)}"
            )
    if len(names) == 2:
        raise InputError(f"{path} has no features: columns besides {target!r} and {environment!r}")


def _table(
    path: Path, columns: Columns, target: str, environment: str, task: str | None
) -> LabelledFile:
    features = columns.features
    if not len(features):
        raise InputError(f"{path} has columns and no rows; write rows to it first")
    environments, sites = _labels(path, environment, columns.environment)
    sizes = np.bincount(sites)
    if len(environments) < 2:
        raise InputError(
            f"{path}: column {environment!r} holds the one environment "
            f"{shorten(environments[0])!r}; at least two are needed, so name another column or add "
            "rows from elsewhere"
        )
    if sizes.min() < FEWEST_ROWS:
        raise InputError(
            f"{path}: environment {shorten(environments[sizes.argmin()])!r} of column "
            f"{environment!r} has {sizes.min()} row; at least {FEWEST_ROWS} are needed: drop or "
            "merge it"
        )
    classes, y = _targets(path, target, columns.target, task)
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
    """Some rows, written column by column: no second copy of a large table."""
    dtype = np.result_type(np.float32, *features.dtypes.unique())
    matrix = np.empty((len(rows), features.shape[1]), dtype)
    for place, (_, column) in enumerate(features.items()):
        matrix[:, place] = column.to_numpy()[rows]
    return matrix


def _labels(path: Path, column: str, values: Any) -> tuple[tuple[str, ...], np.ndarray]:
    """Names in order, and the number of each row's name."""
    import pandas as pd

    codes, found = pd.factorize(values)  # −1 where missing
    names = [str(each) for each in found]
    numbers = [read_number(name) for name in names]
    for code, (name, number) in enumerate(zip(names, numbers, strict=True)):
        if not name.strip() or not abs(number or 0) < math.inf:
            codes[codes == code] = -1
    lost = np.flatnonzero(codes < 0)
    if len(lost):
        raise InputError(
            f"{path}: column {column!r}, row {lost[0] + 1} is missing or infinite ({len(lost)} "
            "in all; NA, NaN and null in a CSV count as missing); fill in or drop such rows"
        )
    keys: list[Any] = names if None in numbers else numbers
    same = Counter(keys)
    twins = [name for name, key in zip(names, keys, strict=True) if same[key] > 1]
    if twins:
        raise InputError(
            f"{path}: column {column!r} writes one number in several ways, {_listed(twins)}; "
            "write it in one way"
        )
    order = order_labels(names)
    return tuple(names[code] for code in order), np.argsort(order)[codes]


def _targets(
    path: Path, target: str, values: Any, task: str | None
) -> tuple[tuple[str, ...] | None, np.ndarray]:
    """Names and numbers of classes, or None and numbers."""
    import pandas as pd

    found = pd.Series(pd.unique(np.asarray(values, dtype=object))).dropna()
    numbers = [read_number(str(each)) for each in found]
    numeric = None not in numbers
    fractions = any((number or 0) % 1 for number in numbers)
    differ = (fractions and len(found) > MOST_FRACTIONS) or 2 * len(found) > len(values)
    if task == "numbers" or (task is None and numeric and differ):
        return None, _numbers(path, target, values)
    classes, y = _labels(path, target, values)
    if len(classes) == 1:
        raise InputError(
            f"{path}: column {target!r} holds the one class {shorten(classes[0])!r}; at least two "
            "are needed, so name another column"
        )
    if 2 * len(classes) > len(y):
        raise InputError(
            f"{path}: column {target!r} has {len(classes)} different values in {len(y)} rows, such "
            f"as {shorten(classes[0])}; name a column of classes or of numbers"
        )
    return classes, y


def _numbers(path: Path, column: str, values: Any) -> np.ndarray:
    """Targets of a regression."""
    import pandas as pd

    given = pd.Series(np.asarray(values, dtype=object))
    numbers = pd.to_numeric(given, errors="coerce").to_numpy(float)
    texts = np.flatnonzero(np.isnan(numbers) & given.notna().to_numpy())
    if len(texts):
        raise InputError(
            f"{path}: column {column!r}, row {texts[0] + 1} is {shorten(given[texts[0]])!r}, not a "
            "number; correct it, or take the column for classes"
        )
    gap = first_gap(numbers)
    if gap is not None:
        what = "missing" if gap.kind == "NaN" else "infinite"
        raise InputError(
            f"{path}: column {column!r}, row {gap.row + 1} is {what} ({gap.count} in all); fill in "
            "or drop such rows"
        )
    if len(np.unique(numbers)) == 1:
        raise InputError(
            f"{path}: column {column!r} is {numbers[0]:g} in every row; name another column"
        )
    return numbers


def _check_numbers(path: Path, features: "pd.DataFrame") -> None:
    """Refuse cells that are missing or infinite, then columns that are no numbers."""
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
            f"number; encode or drop {_listed(texts)}"
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(repr(shorten(name)) for name in names[:SHOWN]) + more

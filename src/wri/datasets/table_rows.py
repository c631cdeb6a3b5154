"""Rows of tables with a target and a site, read from files.

`read_rows` reads raw columns of one or several files, for models with preprocessing. `read_table`
reads numeric features of one file, by environment; columns of categories become one column per
category.

Names of environments and classes are the texts of the cells without blanks around them, in natural
order: "2" before "10", "site 2" before "site 10". Rows in messages are counted from 1, below the
header and without blank lines.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline

from wri.datasets.columns import Column
from wri.datasets.environments import LabelledFile
from wri.datasets.schema import TableSchema, readable_names
from wri.datasets.table_files import check_memory, open_table
from wri.errors import InputError, check_option, listed, shorten, suggest
from wri.rows import find_missing, merge_spellings, order_labels, read_number

FROM_FILE = "file"  # name of the environment column if each file is an environment
MOST_FRACTIONS = 20  # more different labels than this, with fractions, are a measurement
TASKS = ("classes", "numbers")
FEWEST_ROWS = 2  # per environment, for the batches of every objective


@dataclass(frozen=True)
class SourceFile:
    """File that was read."""

    path: str
    rows: int
    sha256: str
    written: str  # delimiter, encoding and decimal mark where they are unusual

    @property
    def described(self) -> str:
        """Description of the file for a person."""
        return f"{self.path}: {self.rows:,} rows" + (f" ({self.written})" if self.written else "")


@dataclass(frozen=True, eq=False, kw_only=True)
class TableRows:
    """Features with target, environment and optional block per row."""

    X: Any  # [n, …], a DataFrame of raw or encoded columns, or an array of numbers
    y: np.ndarray  # [n], class labels or numbers
    groups: np.ndarray  # [n], names of environments
    blocks: np.ndarray | None = None  # [n], rows of one block depend on each other
    target: str = "class"
    environment: str | None = None  # column of environments
    task: Literal["classes", "numbers"]
    files: tuple[SourceFile, ...] = ()
    left_out: tuple[str, ...] = ()  # columns of the files that are no features
    sizes: Mapping[str, int] | None = None  # rows per environment, where these rows are a sample
    owners: tuple[str, ...] = ()  # raw column of each column, where X is encoded

    @property
    def classes(self) -> bool:
        """Whether targets are classes."""
        return self.task == "classes"

    @property
    def environments(self) -> dict[str, int]:
        """Number of rows per environment, in the natural order of names."""
        if self.sizes is not None:
            return dict(self.sizes)
        column = str(self.environment)
        names, codes = read_labels("groups", column, self.groups)
        return dict(zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True))

    def take(self, rows: np.ndarray) -> Self:
        """Return some of the rows."""
        X = self.X.iloc[rows] if hasattr(self.X, "iloc") else self.X[rows]
        blocks = None if self.blocks is None else self.blocks[rows]
        return replace(self, X=X, y=self.y[rows], groups=self.groups[rows], blocks=blocks)

    def take_columns(self, kept: np.ndarray) -> Self:
        """Return some of the encoded columns."""
        owners = tuple(self.owners[k] for k in kept)
        return replace(self, X=self.X.iloc[:, kept], owners=owners)

    def sample(self, most: int, seed: int) -> Self:
        """Draw at most `most` rows, each site in proportion; blocks may lose rows."""
        if len(self.y) <= most:
            return self
        return self.take(np.sort(np.random.default_rng(seed).permutation(len(self.y))[:most]))


def read_rows(
    paths: Sequence[str | Path],
    target: str,
    environment: str | None,
    *,
    task: str | None = None,
    blocks: str | None = None,
    leave_out: Collection[str] = (),
    delimiter: str | None = None,
    encoding: str | None = None,
    memory: float = 4.0,
) -> TableRows:
    """Read files of raw columns; paths may be patterns such as `site_*.csv`.

    Without an `environment` each file is one, named by its stem. Equal cells of the column `blocks`
    mark rows that depend on each other. Only columns to `leave_out` may be missing in some files.
    Files that would take more than `memory` GB are refused unread.
    """
    if task is not None:
        check_option("--task", task, TASKS)
    named = [name for name in (target, environment, blocks) if name is not None]
    if len({*named}) < len(named):
        raise InputError(
            "target, site and blocks must be different columns, not " + ", ".join(named)
        )
    found = _find_files(paths)
    check_memory(found, memory)
    labels = [name for name in (environment, blocks) if name is not None]
    tables = [open_table(path, delimiter, encoding) for path in found]
    for table in tables:
        table.check(target=target, site=environment, blocks=blocks)
    there = check_columns({table.path: table.names for table in tables}, leave_out)
    frames = [table.read(labels, target) for table in tables]
    files = tuple(
        SourceFile(str(table.path), len(frame), digest_file(table.path), table.described)
        for table, frame in zip(tables, frames, strict=True)
    )
    if environment is None:
        _name_sites(found, frames)
    frame = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    frame = frame.drop(columns=[*leave_out]).set_axis(pd.RangeIndex(1, len(frame) + 1))
    where = str(found[0]) if len(found) == 1 else f"{len(found)} files"
    rows = separate(where, frame, target, environment or FROM_FILE, blocks, task)
    left_out = tuple(name for name in there if name in {*leave_out, environment, blocks})
    return replace(rows, files=files, left_out=left_out)


def check_columns(files: Mapping[Path, Sequence[str]], leave_out: Collection[str]) -> list[str]:
    """Return all columns of some files; refuse those that only some have, unless left out."""
    there = list(dict.fromkeys(name for names in files.values() for name in names))
    for name in leave_out:
        if name not in there:
            raise InputError(
                f"--drop names {name!r}, but there is no such column{suggest(name, there)}; the "
                f"columns are {listed(there)}"
            )
    for path, names in files.items():
        lacking = sorted({*there} - {*names} - {*leave_out})
        if lacking:
            raise InputError(
                f"{path} has no column {listed(lacking)}, which other files have; add it there, or "
                f"leave it out with --drop {lacking[0]}"
            )
    return there


def _find_files(paths: Sequence[str | Path]) -> list[Path]:
    """Return paths and the files that match patterns, in this order."""
    found: list[Path] = []
    for path in map(Path, paths):
        pattern = any(mark in str(path) for mark in "*?[") and not path.exists()
        matches = sorted(map(Path, glob(str(path)))) if pattern else [path]
        if not matches:
            raise InputError(f"no file matches {shorten(path)}; check the pattern")
        found += matches
    twice = [path for place, path in enumerate(found) if path in found[:place]]
    if twice:
        raise InputError(f"{shorten(twice[0])} is given twice; leave one out")
    return found


def _name_sites(paths: Sequence[Path], frames: Sequence[pd.DataFrame]) -> None:
    """Add a column with the name of its file to each table."""
    twice = [stem for stem, n in Counter(path.stem for path in paths).items() if n > 1]
    if twice or FROM_FILE in frames[0]:
        what = f"two files are called {shorten(twice[0])!r}" if twice else ""
        raise InputError(
            f"--env-from-file makes the column {FROM_FILE!r} of the files' names, but "
            f"{what or 'there is such a column'}; rename one of them"
        )
    for path, frame in zip(paths, frames, strict=True):
        frame[FROM_FILE] = path.stem


def separate(
    where: str,
    frame: pd.DataFrame,
    target: str,
    environment: str,
    blocks: str | None,
    task: str | None,
) -> TableRows:
    """Separate target, environment and blocks from the features."""
    names, codes = read_labels(where, environment, frame.pop(environment))
    count_sites(where, environment, names, codes)
    classes, y = read_targets(where, target, frame.pop(target), task)
    return TableRows(
        X=frame,
        y=y if classes is None else _class_labels(classes)[y],
        groups=np.array(names, dtype=object)[codes],
        blocks=None if blocks is None else np.asarray(frame.pop(blocks)),
        target=target,
        environment=environment,
        task="numbers" if classes is None else "classes",
    )


def _class_labels(names: Sequence[str]) -> np.ndarray:
    """Return labels as whole numbers if all are written as such, else as texts."""
    try:
        numbers = [int(name) for name in names]
    except ValueError:
        return np.array(names)
    plain = all(str(number) == name for number, name in zip(numbers, names, strict=True))
    return np.array(numbers if plain and max(map(abs, numbers)) < 1 << 53 else names)


def digest_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_labels(
    path: Path | str, column: str, values: Any
) -> tuple[tuple[str, ...], np.ndarray]:  # [n] -> names, [n]
    """Return names in order, and the number of each row's name; blank texts are missing."""
    codes, different = pd.factorize(values)  # −1 where missing
    found, places = merge_spellings(np.asarray(different, object), f"{path}: column {column!r}")
    names = [str(each) for each in found]
    codes = np.append(places, -1)[codes]
    is_blank = np.array([not name.strip() for name in names] + [True])  # the last is missing
    lost = np.flatnonzero(is_blank[codes])
    if len(lost):
        raise InputError(
            f"{path}: column {column!r}, row {lost[0] + 1} is missing ({len(lost)} in all); fill "
            "in or drop such rows"
        )
    numbers = [read_number(name) for name in names]
    same = Counter(numbers)
    twins = [name for name, key in zip(names, numbers, strict=True) if same[key] > 1]
    if twins and None not in numbers:
        raise InputError(
            f"{path}: column {column!r} spells one number in several ways, {listed(twins)}; use "
            "one of them"
        )
    order = order_labels(names)
    return tuple(names[code] for code in order), np.argsort(order)[codes]


def count_sites(
    where: Path | str, column: str, names: Sequence[str], codes: np.ndarray
) -> np.ndarray:  # [n] -> [E]
    """Return the rows of each site; refuse a single site, and a site with too few rows."""
    sizes = np.bincount(codes)
    if len(names) < 2:
        raise InputError(
            f"{where}: column {column!r} holds only one site, {shorten(names[0])!r}; at least two "
            "are needed: name another column, or add rows of another site"
        )
    if sizes.min() < FEWEST_ROWS:
        raise InputError(
            f"{where}: site {shorten(names[int(sizes.argmin())])!r} of column {column!r} has "
            f"{sizes.min()} row; at least {FEWEST_ROWS} are needed: drop or merge it"
        )
    return sizes


def read_targets(
    path: Path | str, target: str, values: Any, task: str | None
) -> tuple[tuple[str, ...] | None, np.ndarray]:
    """Return names and numbers of classes, or None and numbers.

    Without a `task`, targets are numbers if they are fractions of more than 20 different values, or
    numbers of which most differ.
    """
    found = pd.Series(pd.unique(np.asarray(values, dtype=object))).dropna()
    numbers = [read_number(str(each)) for each in found]
    fractions = any((number or 0) % 1 for number in numbers)
    differ = (fractions and len(found) > MOST_FRACTIONS) or 2 * len(found) > len(values)
    if task == "numbers" or (task is None and None not in numbers and differ):
        return None, _read_numbers(path, target, values)
    classes, y = read_labels(path, target, values)
    if len(classes) == 1:
        raise InputError(
            f"{path}: column {target!r} holds only one class, {shorten(classes[0])!r}; at least "
            "two are needed: name another column"
        )
    if 2 * len(classes) > len(y):
        raise InputError(
            f"{path}: column {target!r} has {len(classes)} different values in {len(y)} rows, such "
            f"as {shorten(classes[0])}; name a column of classes or of numbers"
        )
    return classes, y


def _read_numbers(path: Path | str, column: str, values: Any) -> np.ndarray:
    """Return the targets of a regression."""
    given = pd.Series(np.asarray(values, dtype=object))
    numbers = pd.to_numeric(given, errors="coerce").to_numpy(float)
    lost = np.flatnonzero(~np.isfinite(numbers))
    if len(lost):
        cell = given[lost[0]]
        what = "missing" if pd.isna(cell) else f"{shorten(cell)!r}, not a number"
        raise InputError(
            f"{path}: column {column!r}, row {lost[0] + 1} is {what} ({len(lost)} in all); "
            "correct or drop such rows, or treat the column as classes"
        )
    if len(np.unique(numbers)) == 1:
        raise InputError(
            f"{path}: column {column!r} is {numbers[0]:g} in every row; name another column"
        )
    return numbers


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
    if len({target, environment} - {*leave_out, *categories}) < 2:
        raise InputError(
            f"target {target!r} and environment {environment!r} must be two columns, which neither "
            "--drop nor --category names"
        )
    table = open_table(path)
    table.check(target=target, site=environment)
    check_columns({table.path: table.names}, leave_out)
    features = table.read((environment,), target).drop(columns=[*leave_out])
    targets, places = features.pop(target), features.pop(environment)
    return label_rows(path, features, targets, places, task, categories)


def label_rows(
    path: str | Path,
    features: pd.DataFrame,
    targets: pd.Series,
    places: pd.Series,
    task: str | None,
    categories: Collection[str] = (),
) -> LabelledFile:
    """Return rows by environment; messages name `path` and the columns."""
    names, sites = read_labels(path, str(places.name), places)
    sizes = count_sites(path, str(places.name), names, sites)
    classes, y = read_targets(path, str(targets.name), targets, task)
    if not features.shape[1]:
        raise InputError(f"{path} has no features: columns besides target and site")
    schema = describe_columns([str(name) for name in features.columns], categories)
    _check_numbers(path, features.drop(columns=[*categories]))
    if categories:
        features = _encode(features, schema)
    order = np.argsort(sites, kind="stable")
    return LabelledFile(
        x=_matrix(features, order),
        y=y[order],
        names=names,
        sizes=tuple(sizes.tolist()),
        features=tuple(features.columns),
        classes=classes,
    )


def describe_columns(names: Collection[str], categories: Collection[str]) -> TableSchema:
    """Return the schema of a table whose other columns are numbers."""
    unknown = [name for name in categories if name not in names]
    if unknown:
        raise InputError(
            f"--category {listed(unknown)}: there is no such column of features; the table has "
            f"{listed(names)}"
        )
    return TableSchema(
        tuple(Column(name, "category" if name in categories else "number") for name in names)
    )


def _encode(features: pd.DataFrame, schema: TableSchema) -> pd.DataFrame:
    """Return numbers, then one column per category, named such as "ward = north"."""
    steps = make_pipeline(*replace(schema, rows=len(features)).make_preprocessing())
    cells = steps.fit_transform(features)
    names = readable_names(steps.get_feature_names_out(), schema.features)
    return pd.DataFrame(cells, columns=list(names))


def _matrix(features: pd.DataFrame, rows: np.ndarray) -> np.ndarray:  # [n, D]
    """Return some rows, written column by column to avoid a second copy of a large table."""
    dtype = np.result_type(np.float32, *features.dtypes.unique())
    matrix = np.empty((len(rows), features.shape[1]), dtype)
    for place, (_, column) in enumerate(features.items()):
        matrix[:, place] = column.to_numpy()[rows]
    return matrix


def _check_numbers(path: str | Path, features: pd.DataFrame) -> None:
    """Refuse cells that are missing or infinite, then columns without numbers."""
    first, cells, texts = "", 0, []
    for name, column in features.items():
        if column.dtype.kind not in "fiub":
            texts.append(name)
        lost = find_missing(column.to_numpy())
        if lost is not None:
            what = "missing" if lost.kind == "NaN" else "infinite"
            first = first or f"column {shorten(name)!r}, row {lost.row + 1} is {what}"
            cells += lost.count
    if cells:
        raise InputError(
            f"{path}: {first} ({cells} in all); fill in or drop such rows, or drop the column"
        )
    if texts:
        column = features[texts[0]]
        row = int(pd.to_numeric(column, errors="coerce").isna().to_numpy().argmax())
        raise InputError(
            f"{path}: column {shorten(texts[0])!r}, row {row + 1} is {shorten(column.iloc[row])!r},"
            f" not a number; encode or drop {listed(texts)} (wri sweep: --category, --drop)"
        )

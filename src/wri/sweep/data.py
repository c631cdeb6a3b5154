"""Rows of a sweep: a built-in data set by name, or a table from a file."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from wri.datasets import Environment, LabelledFile, joined, load_builtin, read_table
from wri.datasets.environments import SiteRows
from wri.errors import InputError, shorten
from wri.measures import applicable_measures
from wri.presets import FALLBACK
from wri.stacked import SQUARED
from wri.sweep.outcomes import DatasetInfo
from wri.training import Bank
from wri.training.memory import give_back_freed_memory

HOLDOUT = 0.2  # share of an environment's rows that is never used for training


def seed_hash(*parts: int | str) -> int:
    """Return DomainBed's hash of its arguments.

    Parameters
    ----------
    *parts : int or str
        Values to hash.

    Returns
    -------
    seed : int
        Number below 2³¹.

    Examples
    --------
    >>> from wri.sweep import seed_hash
    >>> seed_hash(0, "lr") == seed_hash(0, "lr") < 2**31
    True
    """
    plain = tuple(part if isinstance(part, str) else int(part) for part in parts)
    return int(hashlib.md5(str(plain).encode(), usedforsecurity=False).hexdigest(), 16) % 2**31


@dataclass(frozen=True, eq=False, kw_only=True)
class SweepData:
    """Data set of a sweep: one bank with the rows of all environments.

    Parameters
    ----------
    name : str
        Name in records and tables.
    names : tuple of str
        Names of the environments.
    bank : Bank
        Their rows, one environment after the other.
    sizes : tuple of int
        Rows per environment.
    preset : str, default="domainbed"
        Preset of a sweep, unless another is given.
    source : mapping of str to str, default={}
        How `reload` finds the rows again; empty if it cannot.

    Raises
    ------
    InputError
        If there are fewer than two environments, or one has fewer than 5 rows.

    Examples
    --------
    >>> from wri.datasets import hospitals
    >>> from wri.sweep import gather
    >>> data = gather("hospitals", hospitals(20, seed=0))
    >>> data.names, data.sizes
    (('north', 'east', 'south', 'west'), (20, 20, 20, 20))
    """

    name: str
    names: tuple[str, ...]
    bank: Bank
    sizes: tuple[int, ...]
    preset: str = FALLBACK
    source: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.names) < 2:
            raise InputError(
                f"data set {self.name!r} has {len(self.names)} environment; a sweep holds one out "
                "and trains on the others, so at least two are needed"
            )
        for name, size in zip(self.names, self.sizes, strict=True):
            if int(size * HOLDOUT) < 1:
                raise InputError(
                    f"environment {shorten(name)!r} of data set {self.name!r} has {size} rows; a "
                    "fifth of each is held back, so at least 5 are needed: drop or merge it"
                )

    @cached_property
    def fingerprint(self) -> str:
        """Hash of names and rows: changed data are other runs."""
        digest = hashlib.sha256(repr((self.names, self.sizes, self.bank.loss.name)).encode())
        for rows in (self.bank.features, self.bank.targets):
            digest.update(np.ascontiguousarray(rows).data)
        return digest.hexdigest()[:16]

    @cached_property
    def info(self) -> DatasetInfo:
        """Description for selections and tables."""
        constants = [constant_measures(self.bank, rows) for rows in self.rows]
        return DatasetInfo(
            name=self.name,
            environments=self.names,
            constant={m: tuple(each[m] for each in constants) for m in self.measures},
            held_back=tuple(int(size * HOLDOUT) / size for size in self.sizes),
            source=self.source,
        )

    @property
    def measures(self) -> tuple[str, ...]:
        """Measures that apply to the targets."""
        return applicable_measures(self.bank.n_classes)

    @property
    def rows(self) -> list[np.ndarray]:
        """Row numbers of each environment."""
        ends = np.cumsum(self.sizes)
        return [np.arange(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]

    def training_sizes(self, held_out: Sequence[int]) -> list[int]:
        """Return the number of training rows of each environment that is not held out.

        Parameters
        ----------
        held_out : sequence of int
            Numbers of the held-out environments.

        Returns
        -------
        sizes : list of int
            Rows per training environment.
        """
        kept = [size for e, size in enumerate(self.sizes) if e not in held_out]
        return [size - int(size * HOLDOUT) for size in kept]

    def splits(self, trial_seed: int) -> dict[str, np.ndarray]:
        """Split each environment as DomainBed does.

        Parameters
        ----------
        trial_seed : int
            Number of the trial.

        Returns
        -------
        splits : dict of str to ndarray of int
            Rows of "env0_in", "env0_out", "env1_in", …
        """
        splits = {}
        for e, rows in enumerate(self.rows):
            order = list(range(len(rows)))
            np.random.RandomState(seed_hash(trial_seed, e)).shuffle(order)
            out = int(len(rows) * HOLDOUT)
            splits[f"env{e}_in"], splits[f"env{e}_out"] = rows[order[out:]], rows[order[:out]]
        return splits


def constant_measures(bank: Bank, rows: np.ndarray) -> dict[str, float]:
    """Return the measures of the best constant prediction on some rows."""
    targets = bank.targets[rows]
    if bank.n_classes is None:
        return {"squared_error": float(np.var(targets)), "r2": 0.0}
    shares = np.bincount(targets.astype(int)) / len(targets)
    present = shares[shares > 0]
    entropy = float(-(present * np.log(present)).sum())
    return {"accuracy": float(shares.max()), "loss": entropy, "auroc": 0.5}


def gather(name: str, environments: Sequence[Environment], classes: int | None = None) -> SweepData:
    """Make a data set of a sweep from environments with classes.

    Parameters
    ----------
    name : str
        Name in records and tables.
    environments : sequence of Environment
        The environments.
    classes : int or None, default=None
        Number of classes. None: counted from the targets.

    Returns
    -------
    data : SweepData
        The data set.

    Examples
    --------
    >>> from wri.datasets import hospitals
    >>> from wri.sweep import gather
    >>> gather("hospitals", hospitals(20, seed=0)).bank.features.shape
    (80, 3)
    """
    rows = joined(environments)
    return SweepData(
        name=name,
        names=tuple(each.name for each in environments),
        bank=Bank(rows.x, rows.y, classes=classes),
        sizes=tuple(len(each.y) for each in environments),
    )


def builtin_data(name: str) -> SweepData:
    """Return a built-in table by its name."""
    found = gather(name, load_builtin(name))
    return replace(found, preset="table", source={"builtin": name})


def load_file(
    path: Path,
    target: str,
    environment: str,
    task: str | None = None,
    *,
    leave_out: Sequence[str] = (),
    categories: Sequence[str] = (),
) -> SweepData:
    """Return a table from a file by its columns."""
    lists = {"leave_out": leave_out, "categories": categories}
    table = read_table(path, target, environment, task, **lists)
    give_back_freed_memory()
    return _from_file(path, table, target, environment, lists)


def _from_file(
    path: Path,
    table: LabelledFile,
    target: str,
    environment: str,
    lists: Mapping[str, Sequence[str]],
) -> SweepData:
    if table.classes is None:
        bank, task = Bank(table.x, table.y, loss=SQUARED), "numbers"
    else:
        bank, task = Bank(table.x, table.y, classes=len(table.classes)), "classes"
    columns = {"target": target, "environment": environment, "task": task}
    return SweepData(
        name=path.stem,
        names=table.names,
        bank=bank,
        sizes=table.sizes,
        preset="table",
        source={
            "path": str(path.resolve()),
            **columns,
            **{name: json.dumps([*each]) for name, each in lists.items() if each},
        },
    )


def listed_columns(source: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the columns that a source leaves out, and those that are categories."""
    return {name: json.loads(source.get(name, "[]")) for name in ("leave_out", "categories")}


def load_data(
    names: Sequence[str],
    path: Path | None,
    target: str | None,
    environment: str | None,
    task: str | None = None,
    *,
    leave_out: Sequence[str] = (),
    categories: Sequence[str] = (),
) -> list[SweepData]:
    """Load built-in data sets by their names, and a file by its columns.

    Parameters
    ----------
    names : sequence of str
        Names of built-in data sets.
    path : Path or None
        File of rows.
    target : str or None
        Column of targets in the file.
    environment : str or None
        Column of environments in the file.
    task : {"classes", "numbers"} or None, default=None
        Kind of the target. None: detected.
    leave_out : sequence of str, default=()
        Columns of the file that are not used.
    categories : sequence of str, default=()
        Columns of the file that are categories; other features must be numbers.

    Returns
    -------
    datasets : list of SweepData
        The data sets.

    Raises
    ------
    InputError
        If nothing is named, or the file cannot be used.

    Examples
    --------
    >>> from wri.sweep import load_data
    >>> [data.name for data in load_data(["gaussian2d"], None, None, None)]
    ['gaussian2d']
    """
    found = [builtin_data(name) for name in dict.fromkeys(names)]
    if path is not None:
        if target is None or environment is None:
            raise InputError(
                "--data needs --target and --env: the columns of label and environment"
            )
        lists = {"leave_out": leave_out, "categories": categories}
        found.append(load_file(path, target, environment, task, **lists))
    elif leave_out or categories:
        raise InputError("--drop and --category are for --data; built-in data sets have numbers")
    if not found:
        raise InputError("name a data set with --datasets, or a file with --data")
    return found


def reload(info: DatasetInfo, fingerprint: str, path: Path | None = None) -> SiteRows:
    """Load the rows that a store's runs were trained on.

    Parameters
    ----------
    info : DatasetInfo
        From the store.
    fingerprint : str
        Hash of the rows, from the store; other rows are refused.
    path : Path or None, default=None
        Present path of the file, if it was moved.

    Returns
    -------
    rows : SiteRows
        The rows; x is a DataFrame if its columns have names.

    Raises
    ------
    InputError
        If the rows cannot be found or were changed.

    Examples
    --------
    >>> from wri.sweep import load_data, reload
    >>> (data,) = load_data(["gaussian2d"], None, None, None)
    >>> reload(data.info, data.fingerprint).x.shape
    (3000, 2)
    """
    source = info.source
    table = None
    if "builtin" in source:
        data = builtin_data(source["builtin"])
    elif "path" in source:
        target, environment = source["target"], source["environment"]
        where = path or Path(source["path"])
        lists = listed_columns(source)
        table = read_table(where, target, environment, source["task"], **lists)
        data = _from_file(where, table, target, environment, lists)
    else:
        raise InputError(f"{info.name!r} cannot be loaded again: its rows came from a program")
    if data.fingerprint != fingerprint:
        raise InputError(
            f"the rows of {info.name!r} differ from those of the sweep; name the file of the "
            "sweep with --data"
        )
    x: Any = data.bank.features
    y = data.bank.targets
    if table is not None:
        import pandas as pd

        x = pd.DataFrame(x, columns=list(table.features))
        y = y if table.classes is None else np.array(table.classes)[y]
    return SiteRows(x, y, np.repeat(np.array(data.names), data.sizes))

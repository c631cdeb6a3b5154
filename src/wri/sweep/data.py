"""Rows of a sweep: from a program, a built-in data set by name, a file, or a folder of pictures.

Runs may see the rows through a feature layer, one per trial, held-out environments and width:

    features ─► layer, trained on training rows of the environments not held out ─► features of runs

Seeds of a layer and of the runs on it depend on its place. The width follows DomainBed's rule for
hyper-parameters.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from wri.datasets import ImageFolder, LabelledFile, joined, load_builtin, read_table
from wri.datasets.environments import Environment, SiteRows
from wri.datasets.table_rows import TASKS, label_rows, read_targets
from wri.errors import InputError, check_option, shorten
from wri.features import Backbone, FeatureLayer, picture_environments
from wri.measures import applicable_measures
from wri.presets import FALLBACK
from wri.progress import Progress, ProgressLines
from wri.stacked import SQUARED
from wri.sweep.selection import DatasetInfo
from wri.threads import give_back_freed_memory
from wri.training import Bank

HOLDOUT = 0.2  # share of an environment's rows that is never used for training
CELL = 20  # bytes per feature and row while a layer is trained: two doubles and a float


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
    layer : FeatureLayer or None, default=None
        Feature layer that is trained for each trial and held-out environment, on training rows of
        the other environments; all algorithms see its features. None: they see the rows.

    Raises
    ------
    InputError
        If there are fewer than two environments, one has fewer than 5 rows, or there is a feature
        layer for a target of numbers.

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
    layer: FeatureLayer | None = None

    def __post_init__(self) -> None:
        if self.layer is not None and self.bank.n_classes is None:
            raise InputError(
                f"the target of data set {self.name!r} is a number, but a feature layer learns "
                "from classes; leave it out, or treat the target as classes"
            )
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

    @classmethod
    def from_rows(
        cls,
        name: str,
        X: Any,
        y: Any,
        groups: Any,
        *,
        task: str | None = None,
        layer: FeatureLayer | None = None,
    ) -> "SweepData":
        """Make a data set from rows, as an estimator's `fit` takes them.

        Parameters
        ----------
        name : str
            Name in records and tables.
        X : array-like or DataFrame of shape (n, D)
            Numbers without missing values.
        y : array-like of shape (n,)
            Targets: labels of classes, or numbers.
        groups : array-like of shape (n,)
            Environment of each row.
        task : {"classes", "numbers"} or None, default=None
            Kind of the target. None: detected.
        layer : FeatureLayer or None, default=None
            Feature layer in front of the algorithms.

        Returns
        -------
        data : SweepData
            The data set, its environments in natural order; the preset is "table" without a layer,
            else "domainbed".

        Raises
        ------
        InputError
            If lengths differ or values cannot be used.

        Examples
        --------
        >>> from wri.datasets import hospitals, joined
        >>> from wri.sweep import SweepData
        >>> X, y, site = joined(hospitals(20, seed=0))
        >>> SweepData.from_rows("hospitals", X, y, site).names
        ('east', 'north', 'south', 'west')
        """
        import pandas as pd

        features = pd.DataFrame(X).rename(columns=str)
        columns = {"y": np.asarray(y), "groups": np.asarray(groups)}
        for what, values in columns.items():
            if values.shape != (len(features),):
                raise InputError(
                    f"{what} of {name!r} has the shape {values.shape} for {len(features)} rows of "
                    "X; give one value for each row"
                )
        if task is not None:
            check_option("task", task, TASKS)
        targets, places = (pd.Series(values, name=what) for what, values in columns.items())
        made = _from_labelled(name, label_rows(name, features, targets, places, task), {})
        return with_layer(made, layer)

    @classmethod
    def from_images(
        cls,
        folder: ImageFolder,
        backbone: Backbone | str | None = None,
        *,
        name: str | None = None,
        layer: FeatureLayer | None = FeatureLayer(),  # noqa: B008  (it is frozen)
        progress: Progress | None = None,
    ) -> "SweepData":
        """Make a data set from a folder of pictures, whose domains are the environments.

        Parameters
        ----------
        folder : ImageFolder
            The pictures. Files that cannot be read are named in a warning and left out.
        backbone : Backbone, str or None, default=None
            Backbone that makes features, which are kept on disk. None: EfficientNet-Lite0.
        name : str or None, default=None
            Name in records and tables. None: that of the folder.
        layer : FeatureLayer or None, default=FeatureLayer()
            Feature layer in front of the algorithms. None: they see the backbone's features.
        progress : callable or None, default=None
            Called with (done, of) pictures. None: a line on standard error every half minute.

        Returns
        -------
        data : SweepData
            The data set.

        Examples
        --------
        >>> from wri.datasets import ImageFolder
        >>> from wri.sweep import SweepData
        >>> SweepData.from_images(ImageFolder("PACS")).names  # doctest: +SKIP
        ('art_painting', 'cartoon', 'photo', 'sketch')
        """
        root = folder.root.resolve()
        report = progress or ProgressLines("features of pictures")
        environments = picture_environments(folder, backbone, progress=report)
        made = gather(name or root.name, environments, classes=len(folder.classes))
        return with_layer(replace(made, source={"images": str(root)}), layer)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of names and rows: changed data are other runs."""
        digest = hashlib.sha256(repr((self.names, self.sizes, self.bank.loss.name)).encode())
        for rows in (self.bank.features, self.bank.targets):
            digest.update(np.ascontiguousarray(rows).data)
        if self.layer is not None:
            digest.update(repr(self.layer).encode())
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


def gather(
    name: str,
    environments: Sequence[Environment],
    classes: int | None = None,
) -> SweepData:
    """Make a data set of a sweep from environments.

    Parameters
    ----------
    name : str
        Name in records and tables.
    environments : sequence of Environment
        The environments, or any objects with `name`, `x` and `y`; arrays or DataFrames.
    classes : int or None, default=None
        Number of classes. None: whole numbers from 0 are class numbers, other targets are labels of
        classes, or numbers if they are fractions with many different values.

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
    _check_alike(name, environments)
    rows = joined(environments)
    is_number = rows.y.dtype.kind in "fiub"
    if classes is not None or (is_number and np.all((rows.y >= 0) & (rows.y % 1 == 0))):
        bank = Bank(rows.x, rows.y, classes=classes)
    else:
        labels, y = read_targets(name, "y", rows.y, None)
        bank = _make_bank(rows.x, y, labels)
    return SweepData(
        name=name,
        names=tuple(str(each.name) for each in environments),
        bank=bank,
        sizes=tuple(len(each.y) for each in environments),
    )


def _make_bank(x: np.ndarray, y: np.ndarray, labels: Sequence[str] | None) -> Bank:
    """Return rows with class numbers of these labels, or with numbers."""
    return Bank(x, y, loss=SQUARED) if labels is None else Bank(x, y, classes=len(labels))


def _check_alike(name: str, environments: Sequence[Environment]) -> None:
    """Refuse environments whose rows do not fit together."""
    columns = None
    for each in environments:
        shape, where = np.shape(each.x), f"environment {shorten(str(each.name))!r} of {name!r}"
        if len(shape) != 2 or np.shape(each.y) != shape[:1]:
            raise InputError(
                f"{where}: x must be a table [rows, columns] and y a list with one value per row, "
                f"not shapes {shape} and {np.shape(each.y)}"
            )
        here = [*getattr(each.x, "columns", range(shape[1]))]
        if columns not in (None, here):
            raise InputError(
                f"{where} has other columns than {environments[0].name!r}; give all "
                "environments the same columns in the same order"
            )
        columns = here


def as_datasets(given: Any) -> list[SweepData]:
    """Return the data sets that were given: some, one, pictures, or environments named "data"."""
    if isinstance(given, SweepData):
        return [given]
    if isinstance(given, ImageFolder):
        return [SweepData.from_images(given)]
    found = list(given)
    if all(isinstance(each, SweepData) for each in found):
        return found
    if not all(hasattr(each, part) for each in found for part in ("name", "x", "y")):
        raise InputError(
            "a sweep takes SweepData, an ImageFolder, or environments with name, x and y; "
            "SweepData.from_rows takes X, y and groups"
        )
    return [gather("data", found)]


def with_layer(data: SweepData, layer: FeatureLayer | None) -> SweepData:
    """Return data behind a feature layer, with the preset for features."""
    if layer is None:
        return data
    widths = ",".join(map(str, layer.widths))
    source = {**data.source, "feature_layer": widths} if data.source else {}
    return replace(data, layer=layer, preset=FALLBACK, source=source)


def draw_width(layer: FeatureLayer | None, draw: int, trial: int) -> int | None:
    """Return the width of a draw: the largest in the first, then drawn; None without a layer."""
    if layer is None:
        return None
    if draw == 0:
        return layer.widths[0]
    random = np.random.RandomState(seed_hash(seed_hash(draw, trial), "featurizer_width"))
    return int(random.choice(layer.widths))


def outline(data: SweepData, width: int) -> SweepData:
    """Return data with the shape that a layer gives them; all features are zero."""
    zeros = np.broadcast_to(np.zeros(1, np.float32), (len(data.bank.targets), width))
    return replace(data, bank=replace(data.bank, features=zeros), layer=None)


def apply_layer(data: SweepData, trial: int, held_out: Sequence[int], width: int) -> SweepData:
    """Train a data set's layer and return the data behind it, named by its place."""
    bank, classes = data.bank, data.bank.n_classes
    if data.layer is None or classes is None:
        raise ValueError(f"{data.name} has no feature layer")
    splits = data.splits(trial)
    train = [splits[f"env{e}_in"] for e in range(len(data.names)) if e not in held_out]
    layer = data.layer.fit(
        [(bank.features[rows], bank.targets[rows]) for rows in train],
        width=width,
        classes=classes,
        seed=seed_hash(data.name, *held_out, width, trial),
    )
    features = np.concatenate([layer.transform(bank.features[rows]) for rows in data.rows])
    give_back_freed_memory()
    names = " and ".join(data.names[e] for e in held_out)
    return replace(
        data,
        name=f"{data.name}, {names} held out, {width} features, trial {trial}",
        bank=replace(bank, features=features),
        layer=None,
    )


def layer_memory(data: SweepData) -> float:
    """Estimate the bytes that the training of a layer takes."""
    return 0.0 if data.layer is None else float(CELL * data.bank.features.size)


def builtin_data(name: str) -> SweepData:
    """Return a built-in table by its name."""
    found = gather(name, load_builtin(name))
    return replace(found, preset="table", source={"builtin": name})


def load_file(
    path: Path, target: str, environment: str, task: str | None = None, **lists: Sequence[str]
) -> SweepData:
    """Return a table from a file by its columns; `leave_out` and `categories` as in `load_data`."""
    table = read_table(path, target, environment, task, **lists)
    give_back_freed_memory()
    source = {
        "path": str(path.resolve()),
        "target": target,
        "environment": environment,
        "task": "numbers" if table.classes is None else "classes",
        **{name: json.dumps([*each]) for name, each in lists.items() if each},
    }
    return _from_labelled(path.stem, table, source)


def _from_labelled(name: str, table: LabelledFile, source: Mapping[str, str]) -> SweepData:
    bank, sizes = _make_bank(table.x, table.y, table.classes), table.sizes
    return SweepData(
        name=name, names=table.names, bank=bank, sizes=sizes, preset="table", source=source
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
    lists = {"leave_out": leave_out, "categories": categories}
    if path is not None:
        if target is None or environment is None:
            raise InputError("--data needs --target and --env: the columns of label and site")
        found.append(load_file(path, target, environment, task, **lists))
    elif leave_out or categories:
        raise InputError("--drop and --category are for --data; nothing else has such columns")
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
    if "images" in source:
        raise InputError(
            f"{info.name!r} is a folder of pictures, whose model has a backbone as well; `wri fit "
            f"{shorten(source['images'])} --images` trains one"
        )
    if "feature_layer" in source:
        raise InputError(
            f"the runs on {info.name!r} saw a feature layer of their own for each held-out "
            "environment, so there is no model of its columns; sweep without --feature-layer"
        )
    x: Any
    if "builtin" in source:
        data = builtin_data(source["builtin"])
        x, y = data.bank.features, data.bank.targets
    elif "path" in source:
        import pandas as pd

        where, lists = path or Path(source["path"]), listed_columns(source)
        table = read_table(where, source["target"], source["environment"], source["task"], **lists)
        data = _from_labelled(info.name, table, source)
        x = pd.DataFrame(data.bank.features, columns=list(table.features))
        y = table.y if table.classes is None else np.array(table.classes)[table.y]
    else:
        raise InputError(f"{info.name!r} cannot be loaded again: its rows came from a program")
    if data.fingerprint != fingerprint:
        raise InputError(
            f"the rows of {info.name!r} differ from those of the sweep; name the file of the "
            "sweep with --data"
        )
    return SiteRows(x, y, np.repeat(np.array(data.names), data.sizes))

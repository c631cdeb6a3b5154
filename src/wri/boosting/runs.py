"""Runs of boosted trees: specification, what densities see of the columns, training, records.

    specification   objective with its options · hyper-parameters of its penalty · settings of trees
    number          (x − mean) / scale; 0 where it is missing
    category        one standardised column per common code

Steps are rounds. There are no hidden layers and no hyper-parameters of Adam (learning rate, weight
decay, batches). Only densities see the standardised columns; trees split on the original table.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from functools import cached_property
from math import inf
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from joblib import effective_n_jobs

from wri.boosting.row_weights import WeightedRows
from wri.boosting.trees import Trees, TreeSettings, grow
from wri.errors import InputError
from wri.jobs import Jobs, LocalRunner, Report
from wri.objectives import make_objective
from wri.objectives.hyperparameters import COMMON, HyperParameter
from wri.progress import Progress
from wri.rows import Scaling
from wri.stacked import CROSS_ENTROPY, LOGISTIC, SQUARED, generator
from wri.training import Run, Units
from wri.training.runs import RunResult
from wri.training.spec import ModelSpec, decode_hyper, decode_options

PRESET = "table"
MOST_CODES = 30  # largest number of columns for one column of categories
TWO = 2


@dataclass(frozen=True, kw_only=True)
class TreeSpec(ModelSpec):
    """Model specification of boosted trees; `TreeSpec.grown` fills in the defaults.

    Parameters
    ----------
    objective : Objective
        What is minimised, with its options.
    preset : str
        Preset that supplies hyper-parameters that are not given.
    hidden : tuple of int or None
        Always `()`.
    standardise : bool
        Whether to standardise the target of a regression, and the inputs of densities.
    steps : int
        Number of rounds, the same as in `trees`.
    hyper : mapping of str to float, default={}
        Given hyper-parameters.
    stop_after : int or None, default=None
        Round after which training stops, if it is before `steps`.
    precision : {"single", "double"} or None, default=None
        Precision of the objective.
    solver : {"lbfgs", "adam"} or None, default=None
        Not used: trees are grown in rounds.
    trees : TreeSettings, default=TreeSettings()
        Settings of the trees.

    Raises
    ------
    InputError
        If a name is unknown, a value is out of range, or a hyper-parameter is one of networks.

    Examples
    --------
    >>> from wri.boosting import TreeSettings, TreeSpec
    >>> spec = TreeSpec.grown("wri", TreeSettings(rounds=50))
    >>> spec.steps, spec.hyper["penalty_weight"]
    (50, 1.0)
    """

    trees: TreeSettings = field(default_factory=TreeSettings)

    def __post_init__(self) -> None:
        if odd := [each.name for each in COMMON if each.name in self.hyper]:
            raise InputError(f"trees have no hyper-parameter {odd[0]!r}; only networks have it")
        super().__post_init__()
        if self.steps != self.trees.rounds:
            raise InputError(f"steps must be the {self.trees.rounds} rounds, not {self.steps}")

    @property
    def declared(self) -> tuple[HyperParameter, ...]:
        """Hyper-parameters of the objective alone, without those of networks."""
        return self.objective.own_hyperparameters

    @property
    def is_solved(self) -> bool:
        """Whether the minimum is solved for; never, trees are grown in rounds."""
        return False

    @classmethod
    def grown(
        cls,
        objective: str,
        trees: TreeSettings,
        *,
        hyper: Mapping[str, float] | None = None,
        options: Mapping[str, Any] | None = None,
        stop_after: int | None = None,
    ) -> Self:
        """Make a specification; the preset for tables supplies what is not given.

        Parameters
        ----------
        objective : str
            Name in the registry.
        trees : TreeSettings
            Settings of the trees.
        hyper : mapping of str to float or None, default=None
            Hyper-parameters of the objective.
        options : mapping of str to Any or None, default=None
            Options of the objective.
        stop_after : int or None, default=None
            Round after which training stops.

        Returns
        -------
        spec : TreeSpec
            The specification.
        """
        made = make_objective(objective, PRESET, (), **(options or {}))
        weight = made.tree_penalty_weight
        own = {} if weight is None else {"penalty_weight": weight}
        return cls(
            objective=made,
            preset=PRESET,
            hidden=(),
            standardise=True,
            steps=trees.rounds,
            hyper={**own, **(hyper or {})},
            stop_after=stop_after,
            precision="double",
            trees=trees,
        )

    @property
    def compares(self) -> bool:
        """Whether there is a penalty, so that row weights depend on scores."""
        return self.objective.least_environments > 1 and self.hyper.get("penalty_weight", inf) > 0

    def complete(self, width: int, weight: float, largest: int) -> Self:
        """Fill in all settings that depend on the size of the training rows.

        Parameters
        ----------
        width : int
            Number of columns.
        weight : float
            Total weight of the training rows.
        largest : int
            Number of rows of the largest environment.

        Returns
        -------
        spec : TreeSpec
            Complete specification.
        """
        completed = super().complete(width, weight, largest)
        return replace(completed, trees=self.trees.complete(weight))

    def as_dict(self) -> dict[str, Any]:
        """Return all settings as plain values for JSON; `from_dict` reads them.

        Returns
        -------
        values : dict
            Settings by name.
        """
        every = super().as_dict()
        kept = {name: every[name] for name in ("objective", "options", "hyper", "stop_after")}
        return {**kept, "trees": asdict(self.trees)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make a specification from the values of `as_dict`.

        Parameters
        ----------
        values : mapping of str to Any
            Settings by name.

        Returns
        -------
        spec : TreeSpec
            The specification.

        Raises
        ------
        InputError
            If a setting is missing, unknown or out of range.
        """
        known = {"objective", "options", "hyper", "stop_after", "trees"}
        if odd := sorted(set(values) ^ known):
            raise InputError(f"a specification of trees has missing or unknown {', '.join(odd)}")
        settings = {each.name for each in fields(TreeSettings)}
        if odd := sorted(set(values["trees"]) ^ settings):
            raise InputError(f"settings of trees are missing or unknown: {', '.join(odd)}")
        return cls.grown(
            values["objective"],
            TreeSettings(**values["trees"]),
            hyper=decode_hyper(values["hyper"]),
            options=decode_options(values["options"]),
            stop_after=values["stop_after"],
        )


def fill_gaps(X: np.ndarray) -> np.ndarray:  # [n, D] -> [n, D]
    """Replace missing numbers by the mean of their column, or by 0 if all are missing."""
    lost = np.isnan(X)
    if not lost.any():
        return X
    there = (~lost).sum(0)
    mean = np.where(lost, 0.0, X).sum(0) / np.maximum(there, 1)
    return np.where(lost, mean, X)


class ColumnView(NamedTuple):
    """View of a table for densities, standardised with the training rows.

    Parameters
    ----------
    numbers : ndarray of int of shape (N,)
        Columns that hold numbers.
    codes : ndarray of shape (K, 2)
        Column and code of each category that is seen.
    scaling : Scaling
        Mean and standard deviation of all N + K columns.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.boosting import ColumnView
    >>> X = np.array([[1.0, 0.0], [np.nan, 1.0], [3.0, 1.0]])
    >>> view = ColumnView.of(X, None, categorical=[1])
    >>> view.width, view.apply(X).shape
    (3, (3, 3))
    """

    numbers: np.ndarray  # [N], columns that hold numbers
    codes: np.ndarray  # [K, 2], column and code of each category that is seen
    scaling: Scaling  # of all N + K

    @classmethod
    def of(cls, X: np.ndarray, weights: np.ndarray | None, categorical: Sequence[int]) -> Self:
        """Make the view of these rows.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_features)
            Training rows.
        weights : ndarray of shape (n_rows,) or None
            Weights of the rows.
        categorical : sequence of int
            Columns that hold categories.

        Returns
        -------
        view : ColumnView
            View, standardised with these rows.
        """
        numbers = np.setdiff1d(np.arange(X.shape[1]), np.asarray(categorical, int))
        codes: list[tuple[int, float]] = []
        for column in categorical:
            own = X[:, column]
            found, count = np.unique(own[~np.isnan(own)], return_counts=True)
            common = np.sort(found[np.argsort(-count, kind="stable")][:MOST_CODES])
            codes += [(int(column), float(code)) for code in common]
        table = np.array(codes, float).reshape(-1, 2)
        return cls(numbers, table, Scaling.of(fill_gaps(_spread(X, numbers, table)), weights))

    @property
    def width(self) -> int:
        """Number of columns of the view."""
        return len(self.numbers) + len(self.codes)

    def apply(self, X: np.ndarray) -> np.ndarray:  # [n, D] -> [n, N + K]
        """Return the view of rows.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_features)
            Rows.

        Returns
        -------
        seen : ndarray of shape (n_rows, width)
            Standardised columns without missing values.
        """
        seen = self.scaling.apply(_spread(X, self.numbers, self.codes))
        return np.nan_to_num(seen, copy=False, nan=0.0, posinf=np.inf, neginf=-np.inf)


def _spread(X: np.ndarray, numbers: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the numbers, then one column of 0 and 1 per code."""
    if not len(codes):
        return X[:, numbers]
    own = X[:, codes[:, 0].astype(int)] == codes[:, 1]
    return np.column_stack([X[:, numbers], own.astype(float)])


@dataclass(frozen=True, eq=False)
class TreeRun(Run):
    """One training of trees: a specification, rows of a bank, and a seed."""

    spec: TreeSpec
    _: KW_ONLY
    categorical: tuple[int, ...] = ()

    @cached_property
    def column_view(self) -> ColumnView:
        """What densities see of the columns, standardised with the training rows."""
        weights = None if self.bank.weights is None else self.bank.weights[self.learned]
        return ColumnView.of(self.bank.features[self.learned], weights, self.categorical)

    def _find_inputs(self, learned: np.ndarray, weights: np.ndarray | None) -> Scaling:
        """Return units in which inputs are unchanged."""
        return Units.plain(self.bank.features.shape[1]).inputs

    @property
    def weighted_rows(self) -> WeightedRows:
        """The training rows in the form that an objective takes."""
        rows = self.training_rows()
        return WeightedRows(
            features=self.column_view.apply(rows.all_x),
            targets=rows.all_y,
            environment=np.repeat(np.arange(len(rows.counts)), rows.counts),
            loss=LOGISTIC if self.bank.n_classes == TWO else self.bank.loss,
            weights=rows.all_weight,
        )


def class_outputs(scores: np.ndarray, classes: int | None) -> np.ndarray:
    """Convert scores to outputs for a softmax: of two classes, trees score the second only."""
    if classes != TWO:
        return scores
    return np.column_stack([np.zeros(len(scores)), scores])


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeRecord(RunResult):
    """Record of a run of trees: losses at checkpoints, and the trees."""

    trees: Trees


def split_halves(run: TreeRun) -> np.ndarray:  # [n], 0 or 1
    """Split the rows of each environment into two random halves; equal rows stay together."""
    random, bank = generator(run.seed, "halves"), run.bank
    found = []
    for own in run.train:
        contents = np.column_stack([fill_gaps(bank.features[own]), bank.targets[own]])
        distinct, place = np.unique(contents, axis=0, return_inverse=True)
        found.append(random.permutation(len(distinct))[place.ravel()] % 2)
    return np.concatenate(found)


def train_trees(
    runs: Sequence[TreeRun], *, every: int, n_jobs: int | None, progress: Progress
) -> list[TreeRecord]:
    """Train runs at the same time, or one run with as many threads; return their records.

    Losses are measured `every` few rounds. Progress counts runs, or the rounds of a single run.
    """
    jobs = effective_n_jobs(n_jobs)
    if len(runs) == 1:
        return [_train_one(runs[0], every, jobs, progress)]

    def work(run: TreeRun, report: Report) -> TreeRecord:
        return _train_one(run, every, 1, lambda done, of: report(done))

    records: dict[int, TreeRecord] = {}
    with closing(LocalRunner(min(jobs, len(runs))).run(Jobs(work=work, jobs=runs))) as finished:
        for ended in finished:
            records[ended.number] = ended.result
            progress(len(records), len(runs))
    return [records[number] for number in range(len(runs))]


def _train_one(run: TreeRun, every: int, threads: int, progress: Progress) -> TreeRecord:
    spec, learned = run.spec, run.learned
    rows, last = run.weighted_rows, run.spec.last_step
    trees = grow(
        run.bank.features[learned],
        rows,
        spec.objective,
        spec.hyper,
        spec.trees,
        classes=run.bank.outputs if rows.loss is CROSS_ENTROPY else None,
        categorical=run.categorical,
        halves=split_halves(run) if spec.compares else None,
        seed=run.seed,
        threads=threads,
        rounds=last,
        progress=progress,
    )
    steps = np.unique([*range(every - 1, last, every), last - 1])
    measures: dict[str, np.ndarray] = {
        name: np.array([_loss(run, trees, own, int(step) + 1) for step in steps])
        for name, own in run.evaluate.items()
    }
    finite = np.isfinite(trees.scores(run.bank.features[learned[:1]])).all()
    return TreeRecord(
        steps=steps,
        measures={"loss": measures},
        diverged_at=None if finite else last - 1,
        trees=trees,
    )


def _loss(run: TreeRun, trees: Trees, rows: np.ndarray, rounds: int) -> float:
    """Return the mean loss of some rows after the first rounds, in the unit of the target."""
    bank, unit = run.bank, run.units.target
    outputs = class_outputs(trees.scores(bank.features[rows], rounds), bank.n_classes)
    targets = unit.apply(bank.targets[rows]) if bank.loss is SQUARED else bank.targets[rows]
    losses = bank.loss.per_example(torch.as_tensor(outputs), torch.as_tensor(targets)).numpy()
    weights = None if bank.weights is None else bank.weights[rows]
    return float(np.average(losses, weights=weights)) * float(unit.scale) ** 2

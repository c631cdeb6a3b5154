"""Estimators whose predictor is a sum of boosted trees, grown by LightGBM.

    predict:  X ─► categories as codes ─► start + mean of the forests' scores

Trees split on columns without standardising them, and missing values stay missing. LightGBM is an
optional requirement and is imported when trees are grown or loaded. It takes a category as a whole
number from 0: in a pandas column of the type `category` each label is replaced by its place among
the categories of `fit`, and a new category counts as missing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from inspect import getdoc
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.utils import Tags

from wri.boosting.runs import (
    PRESET,
    TreeRecord,
    TreeRun,
    TreeSpec,
    class_outputs,
    fill_gaps,
    train_trees,
)
from wri.boosting.trees import TreeSettings, load_lightgbm
from wri.errors import InputError, shorten
from wri.estimators.base import EnvironmentEstimator
from wri.estimators.choice import AUTO, PenaltyWeight, preset_penalty_weight, split_candidate
from wri.estimators.inputs import RowSplit
from wri.estimators.network import Estimator
from wri.estimators.problem import Problem
from wri.objectives import OBJECTIVES
from wri.progress import Progress, silent
from wri.stacked import View
from wri.training import Bank, ModelSpec

GROWTH = tuple(each.name for each in fields(TreeSettings))
LADDER = (0.0, 1.0, 5.0)
"""λ that "auto" chooses from, as multiples of the default: few, because trees are not solved."""
MOST_CHOOSING = 1000  # rows per environment that choose λ only
MOST_EXPLAINED = 2000  # largest number of rows for importances
FROM_DTYPE = "from_dtype"
LARGEST_CODE = 2**16 - 1
"""Largest code of a category: LightGBM keeps a bit for each number up to the largest."""


def find_categories(X: Any) -> dict[str, np.ndarray]:
    """Return the categories of a DataFrame's columns of the type `category`, by name."""
    if not isinstance(X, pd.DataFrame):
        return {}
    found = {}
    for name, dtype in X.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype):
            labels = dtype.categories.to_numpy()
            if len(labels) > LARGEST_CODE + 1:
                raise InputError(
                    f"column {shorten(name)!r} has {len(labels)} categories; at most "
                    f"{LARGEST_CODE + 1} are possible: combine rare ones, or leave the column out"
                )
            found[str(name)] = labels
    return found


def encode_categories(X: Any, categories: Mapping[str, np.ndarray]) -> Any:
    """Replace labels by their places among the known categories; new labels become NaN."""
    if not categories or not isinstance(X, pd.DataFrame):
        return X
    X = X.copy(deep=False)
    for name, labels in categories.items():
        if name in X.columns:
            place = pd.Index(labels).get_indexer(pd.Index(X[name].to_numpy(dtype=object)))
            X[name] = np.where(place < 0, np.nan, place.astype(float))
    return X


def find_columns(
    asked: Any, names: np.ndarray | None, width: int, categories: Mapping[str, np.ndarray]
) -> tuple[int, ...]:
    """Return the numbers of the columns that hold categories: by type, and those asked for."""
    places = {} if names is None else {str(name): place for place, name in enumerate(names)}
    found = {places[name] for name in categories}
    given: Sequence[Any] = () if isinstance(asked, str) and asked == FROM_DTYPE else asked
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        raise InputError(
            f"categorical must be {FROM_DTYPE!r}, or a list of names or numbers of columns, not "
            f"{shorten(repr(asked))}"
        )
    for each in given:
        place: Any = places.get(each) if isinstance(each, str) else each
        whole = isinstance(place, int | np.integer) and not isinstance(place, bool)
        if not whole or not 0 <= int(place) < width:
            raise InputError(f"categorical names {shorten(repr(each))}, which is not a column of X")
        found.add(int(place))
    return tuple(sorted(found))


def check_codes(X: np.ndarray, columns: Sequence[int], names: np.ndarray | None) -> None:
    """Refuse codes that LightGBM cannot take: they are whole numbers from 0."""
    for column in columns:
        own = X[:, column]
        wrong = np.flatnonzero(~np.isnan(own) & ~_are_codes(own))
        if len(wrong):
            name = f"column {column}" if names is None else f"column {shorten(names[column])!r}"
            raise InputError(
                f"{name} is categorical and holds {own[wrong[0]]:g} in row {wrong[0]}; codes are "
                f"whole numbers from 0 to {LARGEST_CODE}: make it a pandas column of the type "
                "'category'"
            )


def forget_unknown(X: np.ndarray, columns: Sequence[int]) -> np.ndarray:
    """Replace impossible codes by NaN."""
    if not columns:
        return X
    X = X.copy()
    for column in columns:
        X[~_are_codes(X[:, column]), column] = np.nan
    return X


def _are_codes(values: np.ndarray) -> np.ndarray:
    """Return which values are whole numbers that LightGBM takes for categories; NaN is none."""
    return (values == np.floor(values)) & (values >= 0) & (values <= LARGEST_CODE)


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeProblem(Problem):
    """What all runs of trees of one fit share."""

    trusts_preset: ClassVar[bool] = False  # on small tables it costs more
    categorical: tuple[int, ...] = ()

    def _make_run(self, spec: Any, rows: Sequence[np.ndarray], **settings: Any) -> TreeRun:
        return TreeRun(
            spec, self.bank, rows, seed=self.seed, categorical=self.categorical, **settings
        )

    def train(self, runs: Sequence[TreeRun], every: int, progress: Progress) -> list[TreeRecord]:
        return train_trees(runs, every=every, n_jobs=self.n_jobs, progress=progress)

    def _most_choosing(self, candidates: int) -> int:
        return MOST_CHOOSING


@dataclass(kw_only=True, eq=False, repr=False)
class TreeEstimator(EnvironmentEstimator):
    """Base class of estimators whose predictor is a sum of boosted trees.

    LightGBM grows small trees with the gradient of the objective. It is an optional requirement:
    `pip install 'weighted-risk-invariance[boosting]'`. Missing values are allowed.

    Parameters
    ----------
    environment : as for networks
    penalty_weight : float, "auto" or None, default="auto"
        λ, the weight of the penalty beside the risk. "auto" chooses among 0 (ERM), the default and
        five times it, by the losses at each training environment left out in turn; where no column
        is flagged, by the smallest mean. This needs at least three environments; with two the
        default is used. None always takes the default: 1 for WRI, for other objectives that of the
        preset "table". Objectives without a penalty ignore "auto".
    hyper : dict or None, default=None
        Other hyper-parameters of the objective by name (`anneal_steps`, `eta`, …). Steps are
        rounds.
    options : dict or None, default=None
        Options of the objective, for WRI for instance `{"overlap_power": 0.0}`.
    candidates : list of dict or None, default=None
        Settings to choose from. The keys are `rounds`, `leaves`, `least_rows`, `learning_rate`,
        `l2`, hyper-parameters or options of the objective. The choice uses the loss on each
        training environment left out in turn, which needs at least three environments. With
        `penalty_weight="auto"` each candidate is tried with each λ, unless it names its own.
    choose : as for networks
    futures : as for networks
    early_stopping : bool, default=False
        Whether to stop at the round where the loss on left-out environments (with fewer than
        three, on held-out rows) is smallest. Rounds before the penalty has its full weight do not
        count.
    validation_fraction : float, default=0.2
        Share of each environment's rows that is not used for training but sets the thresholds of
        `verdict` and the round of early stopping. In an environment with fewer than 25 rows all
        rows are used for training and also set the thresholds.
    evidence_on : {"outputs", "x"}, default="outputs"
        What distance from training is measured on. "outputs": the log-odds, or the predicted
        number; far rows are those with extreme predictions. "x": the standardised inputs, which
        also find unusual combinations of columns that have ordinary predictions.
    rare : as for networks
    outside : as for networks
    site_spread : bool, default=True
        Whether to train also without each environment in turn (in five groups if there are more
        than five environments). The interval of `score_new_site` needs it. It takes up to five
        times as long as the rest of `fit`.
    random_state : int, RandomState or None, default=0
        Seed of the halves, of LightGBM and of the held-out rows.
    n_jobs : int or None, default=None
        Number of forests grown at the same time, or of threads if there is one run only. None is
        1, −1 uses all cores. Results do not depend on it.
    verbose : as for networks
    rounds : int, default=300
        Number of trees per output and forest. With a penalty there are two forests, each grown on
        half of the rows.
    leaves : int, default=4
        Number of leaves per tree. More leaves follow causes that act together more closely, but
        they can also close the gap between environments by memorising rows.
    least_rows : int or None, default=None
        Smallest number of rows per leaf. None: one in 20 training rows, from 20 to 200.
    learning_rate : float, default=0.15
        Share of the step of each tree that is taken.
    l2 : float, default=0.0
        Number added to the curvature of a leaf, which makes its step smaller.
    categorical : "from_dtype" or list of str or int, default="from_dtype"
        Columns that hold categories as whole numbers from 0, by name or number. Columns of a
        DataFrame with the type `category` are always taken as categories, with any labels.
    compare_erm : bool, default=True
        Whether to grow trees also without a penalty, for `erm_importances_`.

    Attributes
    ----------
    environments_ : as for networks
    n_environments_ : as for networks
    n_features_in_ : as for networks
    feature_names_in_ : as for networks
    spec_ : TreeSpec
        What was trained: objective, hyper-parameters, and the settings of the trees
        (`spec_.trees`).
    hyper_ : Mapping of str to float
        Hyper-parameters of the objective.
    n_steps_ : int
        Number of rounds.
    feature_importances_ : ndarray of shape (n_features,)
        Mean absolute contribution (Shapley value) of each column to the outputs of training rows,
        as shares of the sum.
    erm_importances_ : ndarray of shape (n_features,) or None
        The same for trees without a penalty; None with `compare_erm=False`.
    importance_change_ : ndarray of shape (n_features,)
        `feature_importances_` minus `erm_importances_`.
    selection_ : as for networks
    candidate_losses_ : as for networks
    penalty_weights_ : as for networks
    evidence_ : as for networks
    evidence_on_ : as for networks
    held_out_ : as for networks
    left_out_ : as for networks
    ranges_ : as for networks
    n_held_out_ : as for networks
    categorical_ : tuple of int
        Numbers of the columns that hold categories.
    categories_ : dict of str to ndarray
        Labels of the columns of the type `category`.
    trees_ : Trees
        The forests.
    view_ : ColumnView
        What densities see of the columns.
    target_scaling_ : as for networks
    """

    _sees: ClassVar[tuple[View, ...]] = ("outputs", "x")
    _ladder: ClassVar[tuple[float, ...]] = LADDER
    _allows_missing: ClassVar[bool] = True

    penalty_weight: PenaltyWeight = AUTO
    rounds: int = 300
    leaves: int = 4
    least_rows: int | None = None
    learning_rate: float = 0.15
    l2: float = 0.0
    categorical: str | Sequence[str | int] = FROM_DTYPE
    compare_erm: bool = True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def importance_change_(self) -> np.ndarray:
        """`feature_importances_` minus `erm_importances_`: the effect of the penalty."""
        if self.erm_importances_ is None:
            raise AttributeError("importance_change_ needs compare_erm=True in the constructor")
        return self.feature_importances_ - self.erm_importances_

    def _encode_columns(self, X: Any, fit: bool) -> Any:
        if fit:
            load_lightgbm()
            self.categories_ = find_categories(X)
        return encode_categories(X, self.categories_)

    def _filled(self, X: np.ndarray) -> np.ndarray:
        return fill_gaps(X)

    def _problem(self, bank: Bank, rows: RowSplit, seed: int) -> Problem:
        names, width = getattr(self, "feature_names_in_", None), bank.features.shape[1]
        self.categorical_ = find_columns(self.categorical, names, width, self.categories_)
        check_codes(bank.features, self.categorical_, names)
        return TreeProblem(
            bank=bank, rows=rows, seed=seed, n_jobs=self.n_jobs, categorical=self.categorical_
        )

    def _spec(self, candidate: Mapping[str, Any]) -> TreeSpec:
        known = self._kind.own_hyperparameters
        weight = self.penalty_weight
        given = {} if weight in (None, AUTO) else {"penalty_weight": weight}
        growth = {name: getattr(self, name) for name in GROWTH}
        growth, hyper, options = split_candidate(self, candidate, growth, given, known)
        settings = TreeSettings(**growth)
        return TreeSpec.grown(self._objective, settings, hyper=hyper, options=options)

    def _plain_erm(self, spec: ModelSpec) -> TreeSpec:
        return TreeSpec.grown("erm", self._spec({}).trees)

    def _default_penalty_weight(self) -> float | None:
        own = OBJECTIVES[self._objective].tree_penalty_weight
        return preset_penalty_weight(self._objective, PRESET) if own is None else own

    def _learn(self, problem: Problem, run: TreeRun, record: TreeRecord) -> None:
        super()._learn(problem, run, record)
        learned = run.learned
        rows = problem.bank.features[learned[:: 1 + len(learned) // MOST_EXPLAINED]]
        self.feature_importances_ = self.trees_.importances(rows)
        self.erm_importances_ = self.feature_importances_ if self.compare_erm else None
        if self.compare_erm and run.spec.compares:
            spec = run.spec
            erm = TreeSpec.grown("erm", spec.trees, stop_after=spec.stop_after)
            plain = problem.run(erm, range(self.n_environments_))
            (record,) = problem.train([plain], spec.steps, silent)
            self.erm_importances_ = record.trees.importances(rows)

    def _take(self, run: TreeRun, record: TreeRecord) -> None:
        self.spec_ = run.spec
        self.target_scaling_ = run.units.target
        self.view_, self.trees_ = run.column_view, record.trees

    def _prepare(self, features: np.ndarray) -> np.ndarray:
        return forget_unknown(features, self.categorical_)

    def _outputs(self, prepared: np.ndarray) -> np.ndarray:  # [n, D] -> [n, C]
        return class_outputs(self.trees_.scores(prepared), self._n_outputs)

    def _view(self, prepared: np.ndarray) -> np.ndarray:  # [n, D] -> [n, V]
        return self.view_.apply(prepared)


_ENTRIES = dict(re.findall(r"^(\w+) : (.*(?:\n    .*)*)", getdoc(Estimator) or "", re.MULTILINE))
TreeEstimator.__doc__ = re.sub(
    r"^(\w+) : as for networks$",
    lambda entry: f"{entry[1]} : {_ENTRIES[entry[1]]}",
    getdoc(TreeEstimator) or "",
    flags=re.MULTILINE,
)

"""Estimators whose predictor is a sum of boosted trees, grown by LightGBM.

    predict:  X ─► categories as codes ─► start + mean of the forests' scores

Trees split on columns without standardising them, and missing values stay missing. LightGBM is an
optional requirement and is imported when trees are grown or loaded.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import Tags

from wri.boosting import ColumnView, TreeRecord, TreeRun, Trees, TreeSpec, class_outputs, fill_gaps
from wri.boosting.runs import train_trees
from wri.boosting.spec import PRESET
from wri.boosting.trees import load_lightgbm
from wri.estimators.choice import DEFAULT_RULE, Rule
from wri.estimators.common import EnvironmentEstimator
from wri.estimators.row_split import RowSplit
from wri.estimators.search import Problem
from wri.estimators.specs import AUTO, PenaltyWeight, preset_penalty_weight
from wri.estimators.tree_columns import (
    FROM_DTYPE,
    check_codes,
    encode_categories,
    find_categories,
    find_columns,
    forget_unknown,
)
from wri.estimators.tree_specs import TreeProblem, make_tree_spec, make_tree_specs
from wri.futures import Future
from wri.objectives import OBJECTIVES
from wri.progress import silent
from wri.rows import refuse_gaps
from wri.stacked import View
from wri.training import Bank, ModelSpec

MOST_EXPLAINED = 2000  # largest number of rows for importances


class TreeEstimator(EnvironmentEstimator):
    """Base class of estimators whose predictor is a sum of boosted trees.

    LightGBM grows small trees with the gradient of the objective. It is an optional requirement:
    `pip install 'weighted-risk-invariance[boosting]'`. Missing values are allowed.

    Parameters
    ----------
    environment : str or None, default=None
        Name of the DataFrame column that holds the environment of each row, in place of `groups`
        in `fit`. The column is not a feature, and `predict` does not need it.
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
    choose : {"regret", "average"}, default="regret"
        Rule by which candidates and `penalty_weight="auto"` are chosen, at each training
        environment left out in turn. "regret": the least worst relative regret over `futures`.
        "average": the smallest mean loss at environments like these.
    futures : sequence of {"like", "unrelated", "reversed"} or None, default=None
        Futures that "regret" insures against. "like": an environment like these. "unrelated": the
        columns whose relation to the target changes between environments tell nothing.
        "reversed": they tell the opposite. None: all three.
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
    rare : float, default=0.05
        Share of the training environments' rows that `verdict` calls rare or outside.
    outside : float, default=0.005
        Share of the training environments' rows that `verdict` calls outside; of a classifier's
        rows fewer are, because those that it is unsure of are rare.
    compare_erm : bool, default=True
        Whether to grow trees also without a penalty, for `erm_importances_`.
    site_spread : bool, default=True
        Whether to train also without each environment in turn (in five groups if there are more
        than five environments). The interval of `score_new_site` needs it. It takes up to five
        times as long as the rest of `fit`.
    random_state : int, RandomState or None, default=0
        Seed of the halves, of LightGBM and of the held-out rows.
    n_jobs : int or None, default=None
        Number of forests grown at the same time, or of threads if there is one run only. None is
        1, −1 uses all cores. Results do not depend on it.
    verbose : bool, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    environments_ : ndarray of shape (n_environments,)
        Labels of the training environments.
    n_environments_ : int
        Number of training environments.
    n_features_in_ : int
        Number of columns in `fit`, without the environment column.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of these columns, if `X` was a DataFrame with string names.
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
    selection_ : str
        How the hyper-parameters were chosen, with the cost and the benefit of the penalty.
    candidate_losses_ : ndarray of shape (n_candidates, n_environments) or None
        Loss on each environment when it was left out; None if none was.
    penalty_weights_ : ndarray of shape (n_candidates,) or None
        λ of each candidate; None if no environment was left out.
    evidence_ : Evidence
        Densities of the training environments with the thresholds of `verdict`.
    evidence_on_ : str
        What the evidence sees of a row.
    known_ : HeldOutRows
        Predictions and losses of the held-out rows.
    left_out_ : LeftOutSites or None
        Loss of each environment when it was left out; None if none was.
    ranges_ : ColumnRanges
        Range of each column in training.
    n_held_out_ : int
        Number of rows that were not used for training.
    categorical_ : tuple of int
        Numbers of the columns that hold categories.
    categories_ : dict of str to ndarray
        Labels of the columns of the type `category`.
    trees_ : Trees
        The forests.
    view_ : ColumnView
        What densities see of the columns.
    target_scaling_ : Scaling
        Mean and standard deviation of the target.
    """

    _sees: ClassVar[tuple[View, ...]] = ("outputs", "x")
    preset: str = PRESET
    trees_: Trees
    view_: ColumnView
    feature_importances_: np.ndarray
    erm_importances_: np.ndarray | None
    categorical_: tuple[int, ...]
    categories_: dict[str, np.ndarray]

    def __init__(
        self,
        *,
        environment: str | None = None,
        rounds: int = 300,
        leaves: int = 4,
        least_rows: int | None = None,
        learning_rate: float = 0.15,
        l2: float = 0.0,
        categorical: str | Sequence[str | int] = FROM_DTYPE,
        penalty_weight: PenaltyWeight = AUTO,
        hyper: Mapping[str, float] | None = None,
        options: Mapping[str, Any] | None = None,
        candidates: Sequence[Mapping[str, Any]] | None = None,
        choose: Rule = DEFAULT_RULE,
        futures: Sequence[Future] | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.2,
        evidence_on: View = "outputs",
        rare: float = 0.05,
        outside: float = 0.005,
        compare_erm: bool = True,
        site_spread: bool = True,
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.environment = environment
        self.rounds = rounds
        self.leaves = leaves
        self.least_rows = least_rows
        self.learning_rate = learning_rate
        self.l2 = l2
        self.categorical = categorical
        self.penalty_weight = penalty_weight
        self.hyper = hyper
        self.options = options
        self.candidates = candidates
        self.choose = choose
        self.futures = futures
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.evidence_on = evidence_on
        self.rare = rare
        self.outside = outside
        self.compare_erm = compare_erm
        self.site_spread = site_spread
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def importance_change_(self) -> np.ndarray:
        """`feature_importances_` minus `erm_importances_`: the effect of the penalty."""
        if self.erm_importances_ is None:
            raise AttributeError("importance_change_ needs compare_erm=True when fit is called")
        return self.feature_importances_ - self.erm_importances_

    def _read_columns(self, X: Any) -> Any:
        load_lightgbm()
        self.categories_ = find_categories(X)
        return encode_categories(X, self.categories_)

    def _known_columns(self, X: Any) -> Any:
        return encode_categories(X, self.categories_)

    def _check_cells(self, X: np.ndarray) -> None:
        names = getattr(self, "feature_names_in_", None)
        if not np.isfinite(X).all():
            refuse_gaps(np.nan_to_num(X, posinf=np.inf, neginf=-np.inf), names)

    def _filled(self, X: np.ndarray) -> np.ndarray:
        return fill_gaps(X)

    def _problem(
        self,
        X: np.ndarray,
        targets: np.ndarray,
        weights: np.ndarray | None,
        rows: RowSplit,
        seed: int,
    ) -> Problem:
        names = getattr(self, "feature_names_in_", None)
        self.categorical_ = find_columns(self.categorical, names, X.shape[1], self.categories_)
        check_codes(X, self.categorical_, names)
        bank = Bank(
            X, targets, loss=self._loss, classes=self._n_outputs, weights=weights, gaps=True
        )
        return TreeProblem(
            bank=bank, rows=rows, seed=seed, n_jobs=self.n_jobs, categorical=self.categorical_
        )

    def _default_penalty_weight(self) -> float | None:
        own = OBJECTIVES[self._objective].tree_penalty_weight
        return preset_penalty_weight(self._objective, self.preset) if own is None else own

    def _specs(self, can_choose: bool) -> list[ModelSpec]:
        asked = make_tree_specs(self)
        if len(asked) > 1 and not can_choose:
            asked = [make_tree_spec(self)]
        if self.n_environments_ < asked[0].objective.least_environments:
            first = make_tree_spec(self)
            return [TreeSpec.grown("erm", first.trees)]
        return asked

    def _train(self, problem: Problem, specs: Sequence[ModelSpec]) -> None:
        super()._train(problem, specs)
        run: Any = problem.run(self.spec_, range(self.n_environments_))
        learned = run.learned
        rows = problem.bank.features[learned[:: 1 + len(learned) // MOST_EXPLAINED]]
        self.feature_importances_ = self.trees_.importances(rows)
        self.erm_importances_ = self.feature_importances_ if self.compare_erm else None
        if self.compare_erm and run.tree_spec.compares:
            plain = [run.without_penalty()]
            (record,) = train_trees(
                plain, every=run.spec.steps, n_jobs=self.n_jobs, progress=silent
            )
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

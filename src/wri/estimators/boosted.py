"""Estimators whose predictor is a forest of boosted trees, grown by LightGBM.

    predict:  X ─► categories as codes ─► start + mean of the forests' scores

Trees split on columns as they are: no units, missing values stay missing. LightGBM is an optional
requirement and is imported when trees grow or are read.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import Tags

from wri.boosting import ColumnView, TreeRecord, TreeRun, Trees, TreeSpec, class_outputs, fill_gaps
from wri.boosting.runs import train_trees
from wri.boosting.spec import PRESET
from wri.boosting.trees import load_lightgbm
from wri.estimators.choice import Rule
from wri.estimators.common import EnvironmentEstimator
from wri.estimators.search import Problem, RowSplit
from wri.estimators.specs import PenaltyWeight
from wri.estimators.tree_columns import (
    FROM_DTYPE,
    check_codes,
    encode_categories,
    find_categories,
    find_columns,
    forget_unknown,
)
from wri.estimators.tree_specs import TreeProblem, make_tree_spec, make_tree_specs
from wri.progress import silent
from wri.rows import refuse_gaps
from wri.stacked import Seen
from wri.training import Bank, ModelSpec

MOST_EXPLAINED = 2000  # rows whose scores are taken apart for importances


class TreeEstimator(EnvironmentEstimator):
    """The predictor is a sum of small trees, grown by LightGBM for the objective's own gradient.

    Parameters
    ----------
    environment
        Name of the DataFrame column that says where a row comes from. It is not a feature, and
        `predict` does not need it. In place of `groups` in `fit`.
    rounds
        Trees per score, and per forest: with a penalty a forest grows on each half of the rows.
    leaves
        Leaves per tree. More leaves follow causes that act together more closely, and can close
        the gap between environments by memorising rows.
    least_rows
        Rows per leaf at least; when None one in 20 training rows, from 20 to 200.
    learning_rate
        Share of each tree's step that is taken.
    l2
        Added to the curvature of a leaf, which shrinks its step.
    categorical
        Columns whose numbers are names, by name or number: whole numbers from 0. "from_dtype"
        takes a DataFrame's columns of the type `category`, whose labels may be anything.
    penalty_weight
        λ, how much the penalty counts beside the risk: a number, the default when None (5 for WRI,
        for others that of tables), or "auto": chosen from a ladder of values around it, 0 (ERM)
        among them, by the loss on each training environment left out in turn. That takes three
        environments or more.
    hyper
        Further hyper-parameters of the objective by name (`anneal_steps`, `eta`, …); steps are
        rounds.
    options
        Options of the objective (`{"overlap_power": 0.0}` for WRI, …).
    candidates
        Settings to choose from, a list of dicts of `leaves`, `least_rows`, `learning_rate`, `l2`,
        `rounds`, hyper-parameters or options: by the loss on each training environment left out in
        turn, which takes three environments or more. With `penalty_weight="auto"` each is tried
        with every λ of the ladder, unless it has its own.
    choose
        By which rule. "average": the least mean loss over left-out environments. "worst": the least
        loss at the worst of them. "insured": the largest λ whose mean loss is within one standard
        error of the least; a larger λ relies less on relations that change between environments.
        "affordable": the largest λ whose mean loss is within 1 % of the least.
    early_stopping
        Stop at the round where the loss on left-out environments is least (with fewer than three,
        on held-out rows), once penalties have their full weight.
    validation_fraction
        Share of every environment's rows that is not learned from but sets the thresholds of
        `verdict` (and stops early). Environments with fewer than 25 rows spare none; their rows
        set the thresholds themselves.
    evidence_on
        What the evidence sees of a row. The predictor's "outputs" (log-odds, or the number
        predicted): rare rows have extreme predictions, and what the predictor ignores makes no row
        rare. The standardised inputs "x" see strange combinations with ordinary predictions too.
    rare, outside
        Shares of the training environments' rows that `verdict` calls at least rare, and outside.
    compare_erm
        Whether to grow trees without a penalty as well, for `erm_importances_`.
    site_spread
        Whether to train without each environment in turn as well (in five groups of them where
        there are more), for the interval of `score_new_site`. It costs up to five times the rest.
    random_state
        Seed of the halves, of LightGBM and of held-out rows. An integer is the seed itself.
    n_jobs
        Forests that grow at a time, or threads of a single one: None or 1 for one, −1 for all
        cores. Results do not depend on it.
    verbose
        Whether to show a progress bar.

    Attributes
    ----------
    environments_, n_environments_
        Labels of the training environments and how many there were.
    spec_
        What was trained: objective, hyper-parameters, how trees grew (`spec_.trees`).
    hyper_, n_steps_
        Hyper-parameters of its penalty, and the rounds that were taken.
    feature_importances_
        `[n_features]`: mean absolute contribution (Shapley value) of each column to the scores of
        training rows, as shares.
    erm_importances_
        The same of trees without a penalty, or None; see `importance_change_`.
    selection_
        How they were found, what the penalty costs and what it buys, in words.
    candidate_losses_
        `[candidates, environments]`: loss on each environment when it was left out, or None.
    penalty_weights_
        `[candidates]`: λ of each, the ladder of "auto"; None where nothing was left out.
    evidence_, evidence_on_
        Densities and thresholds, and what they see.
    known_, left_out_, ranges_
        What `score_new_site` compares with: held-out rows and their losses, the loss of each
        environment when it was left out (or None), and the range of each column.
    n_held_out_
        Rows that were not learned from.
    categorical_, categories_
        Columns whose numbers are names, and the labels of those of the type `category`.
    trees_, view_, target_scaling_
        The grown forests, what densities see of the columns, and the unit of the target.
    """

    _sees: ClassVar[tuple[Seen, ...]] = ("outputs", "x")
    preset: ClassVar[str] = PRESET
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
        penalty_weight: PenaltyWeight = None,
        hyper: Mapping[str, float] | None = None,
        options: Mapping[str, Any] | None = None,
        candidates: Sequence[Mapping[str, Any]] | None = None,
        choose: Rule = "average",
        early_stopping: bool = False,
        validation_fraction: float = 0.2,
        evidence_on: Seen = "outputs",
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
        """`feature_importances_` minus those without a penalty: what the penalty lets go of."""
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
        self.view_, self.trees_ = run.view, record.trees

    def _prepare(self, features: np.ndarray) -> np.ndarray:
        return forget_unknown(features, self.categorical_)

    def _outputs(self, prepared: np.ndarray) -> np.ndarray:  # [n, D] -> [n, C]
        return class_outputs(self.trees_.scores(prepared), self._n_outputs)

    def _view(self, prepared: np.ndarray) -> np.ndarray:  # [n, D] -> [n, V]
        return self.view_.apply(prepared)

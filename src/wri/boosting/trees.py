"""Boosted trees that minimise an objective over environments, on LightGBM.

Trees can close the gap between environments by memorising training rows. Therefore, with a penalty,
rows are split into two halves by their contents and a forest grows on each. In every round the gap,
and with it the weight of each row, comes from the scores of the forest that has not seen the row:

    f = (f_A + f_B) / 2,    ω from f_B on A's rows and from f_A on B's

The forest of each half then takes the step ω_r · l′(f_r) on its own rows. Without a penalty there
is one forest on all rows, the same as with LightGBM's own objectives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Self

import numpy as np

from wri.boosting.model_text import END, MOST_TREES, clean_forest
from wri.boosting.row_weights import RowWeights, WeightedRows, loss_slopes, tree_gradients
from wri.errors import InputError
from wri.objectives import Objective
from wri.progress import Progress

MOST_LEAVES = 2**16
MOST_ROWS = 2**31 - 1  # LightGBM counts rows in 32 bits
LARGEST = 1e100
FEWEST_LEAST, MOST_LEAST = 20, 200  # limits of the default rows per leaf
LEAST_SHARE = 20  # by default a leaf has at least one in 20 training rows, within these limits


@dataclass(frozen=True, kw_only=True)
class TreeSettings:
    """Settings of boosted trees.

    Parameters
    ----------
    rounds : int, default=300
        Number of trees per score.
    leaves : int, default=4
        Number of leaves per tree.
    least_rows : int or None, default=None
        Smallest number of rows per leaf. None: one in 20 training rows, from 20 to 200.
    learning_rate : float, default=0.15
        Share of the step of each tree that is taken.
    l2 : float, default=0.0
        Number added to the curvature of a leaf.

    Raises
    ------
    InputError
        If a value is out of range.

    Examples
    --------
    >>> from wri.boosting import TreeSettings
    >>> TreeSettings(rounds=100).complete(weight=1000).least_rows
    50
    """

    rounds: int = 300
    leaves: int = 4
    least_rows: int | None = None
    learning_rate: float = 0.15
    l2: float = 0.0

    def __post_init__(self) -> None:
        self._check("rounds", self.rounds, 1, MOST_TREES, whole=True)
        self._check("leaves", self.leaves, 2, MOST_LEAVES, whole=True)
        if self.least_rows is not None:
            self._check("least_rows", self.least_rows, 1, MOST_ROWS, whole=True)
        self._check("learning_rate", self.learning_rate, 1e-6, 1.0)
        self._check("l2", self.l2, 0.0, LARGEST)

    @staticmethod
    def _check(name: str, value: Any, low: float, high: float, whole: bool = False) -> None:
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not low <= value <= high or (whole and value != int(value)):
            kind = "a whole number" if whole else "a number"
            raise InputError(f"{name} must be {kind} from {low:g} to {high:g}, not {value!r:.40}")

    def complete(self, weight: float) -> "TreeSettings":
        """Fill in `least_rows` by the weight of the training rows.

        Parameters
        ----------
        weight : float
            Total weight of the training rows.

        Returns
        -------
        settings : TreeSettings
            Complete settings.
        """
        if self.least_rows is not None:
            return self
        least = int(min(MOST_LEAST, max(FEWEST_LEAST, weight / LEAST_SHARE)))
        return replace(self, least_rows=least)

    def parameters(self, seed: int, threads: int = 1) -> dict[str, Any]:
        """Return the settings by LightGBM's names.

        Parameters
        ----------
        seed : int
            Seed of LightGBM.
        threads : int, default=1
            Number of threads.

        Returns
        -------
        parameters : dict
            Parameters of LightGBM.
        """
        return {
            "num_leaves": int(self.leaves),
            "min_data_in_leaf": int(self.least_rows or FEWEST_LEAST),
            "learning_rate": self.learning_rate,
            "lambda_l2": self.l2,
            "num_threads": threads,
            "seed": seed % 2**31,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class Trees:
    """One or two grown forests; their scores are averaged.

    Attributes
    ----------
    texts : tuple of str
        Checked texts of the forests.
    boosters : tuple of lightgbm.Booster
        The forests.
    start : ndarray of shape (C,)
        Score before the first tree.
    n_features : int
        Number of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.boosting import Trees
    >>> tree = "Tree=0\\nnum_leaves=1\\nnum_cat=0\\nleaf_value=2\\nis_linear=0\\nshrinkage=1\\n"
    >>> text = f"tree\\nversion=v4\\n\\n{tree}\\n\\nend of trees\\n"
    >>> Trees.read([text], np.array([0.5]), n_features=2).scores(np.zeros((1, 2))).tolist()
    [[2.5]]
    """

    texts: tuple[str, ...]  # as `clean_forest` writes them
    boosters: tuple[Any, ...]  # lightgbm.Booster
    start: np.ndarray  # [C], score before the first tree
    n_features: int

    @classmethod
    def read(cls, texts: Sequence[str], start: np.ndarray, n_features: int) -> Self:
        """Read forests from texts; texts from untrusted sources are safe.

        Parameters
        ----------
        texts : sequence of str
            Texts in LightGBM's format.
        start : ndarray of shape (C,)
            Score before the first tree.
        n_features : int
            Number of columns that trees may split on.

        Returns
        -------
        trees : Trees
            The forests.

        Raises
        ------
        InputError
            If a text is not a valid forest, or LightGBM is not installed.
        """
        lightgbm = load_lightgbm()
        cleaned = tuple(clean_forest(text, n_features, len(start)) for text in texts)
        try:
            boosters = tuple(lightgbm.Booster(model_str=text) for text in cleaned)
        except lightgbm.basic.LightGBMError as error:
            raise InputError(f"LightGBM cannot read the forest: {error}") from error
        return cls(texts=cleaned, boosters=boosters, start=start, n_features=n_features)

    def scores(self, X: Any, rounds: int | None = None) -> np.ndarray:
        """Return the scores of rows.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_features)
            Rows; missing values are NaN.
        rounds : int or None, default=None
            Number of rounds that count. None: all.

        Returns
        -------
        scores : ndarray of shape (n_rows, C)
            Mean scores of the forests.
        """
        options = {"raw_score": True, "num_iteration": rounds, "num_threads": 1}
        grown = [_as_table(booster.predict(X, **options)) for booster in self.boosters]
        return self.start + sum(grown) / len(grown)

    def importances(self, X: Any) -> np.ndarray:  # [n, D] -> [D]
        """Return the mean absolute contribution of each column to the scores, as shares.

        Contributions are Shapley values, which LightGBM computes; they sum to the score. The gain
        of splits is not used: it would count a column twice if a later tree undoes an earlier one.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_features)
            Rows.

        Returns
        -------
        importances : ndarray of shape (n_features,)
            Shares, which sum to one; all 0 if no tree has a split.
        """
        parts = [booster.predict(X, pred_contrib=True, num_threads=1) for booster in self.boosters]
        mean = np.mean(parts, 0).reshape(len(X), len(self.start), -1)  # [n, C, D + 1]
        size = np.abs(mean[..., :-1]).mean((0, 1))
        total = size.sum()
        return size / total if total > 0 else size


def load_lightgbm() -> Any:
    """Import LightGBM, which is an optional requirement."""
    try:
        import lightgbm
    except ImportError as error:
        raise InputError(
            "boosted trees need LightGBM; install it with pip install "
            "'weighted-risk-invariance[boosting]'"
        ) from error
    return lightgbm


def grow(
    X: Any,
    rows: WeightedRows,
    objective: Objective,
    hyper: Mapping[str, float],
    settings: TreeSettings,
    *,
    classes: int | None = None,
    categorical: Sequence[int] = (),
    halves: np.ndarray | None = None,
    seed: int = 0,
    threads: int = 1,
    rounds: int | None = None,
    progress: Progress | None = None,
) -> Trees:
    """Grow trees for an objective.

    Parameters
    ----------
    X : ndarray of shape (n, D)
        Columns that trees split on; missing values are NaN.
    rows : WeightedRows
        The same rows for the objective.
    objective : Objective
        What is minimised.
    hyper : mapping of str to float
        Hyper-parameters of the objective; steps are rounds.
    settings : TreeSettings
        Settings of the trees.
    classes : int or None, default=None
        Number of outputs of a cross-entropy.
    categorical : sequence of int, default=()
        Columns of X that hold categories.
    halves : ndarray of shape (n,) or None, default=None
        0 or 1 for each row, to grow one forest per half. None: one forest on all rows.
    seed : int, default=0
        Seed of LightGBM and of the random draws of the objective.
    threads : int, default=1
        Number of threads of LightGBM; results do not depend on it.
    rounds : int or None, default=None
        Round after which to stop, if it is before those of the settings.
    progress : callable or None, default=None
        Called with the rounds done and in all.

    Returns
    -------
    trees : Trees
        The grown forests.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.boosting import TreeSettings, WeightedRows, grow
    >>> from wri.objectives import make_objective
    >>> from wri.stacked import LOGISTIC
    >>> x = np.random.default_rng(0).normal(size=(80, 2))
    >>> rows = WeightedRows(
    ...     features=x,
    ...     targets=(x[:, 0] > 0).astype(int),
    ...     environment=np.repeat([0, 1], 40),
    ...     loss=LOGISTIC,
    ...     weights=np.ones(80),
    ... )
    >>> erm = make_objective("erm", "table", ())
    >>> trees = grow(x, rows, erm, {}, TreeSettings(rounds=5, least_rows=5))
    >>> low, high = trees.scores(np.array([[-1.0, 0.0], [1.0, 0.0]]))[:, 0]
    >>> bool(low < 0 < high)
    True
    """
    if settings.rounds * (classes or 1) > MOST_TREES:
        raise InputError(
            f"{settings.rounds:,} rounds of {classes} classes are more than {MOST_TREES:,} trees; "
            "give fewer rounds"
        )
    weights = RowWeights(objective, rows, hyper, seed)
    start = _start(rows, weights, classes or 1)
    parts = [np.ones(len(X), bool)] if halves is None else [halves == 0, halves == 1]
    parameters = settings.parameters(seed, threads)
    forests = [_Forest(X, own, parameters, start, categorical) for own in parts]
    for round_ in range(rounds or settings.rounds):
        scores = forests[0].scores
        if halves is not None:  # each row's score by the forest that has not seen it
            scores = np.where(halves[:, None] == 0, forests[1].scores, forests[0].scores)
        now = weights.at(scores, round_)
        for forest in forests:
            slopes = loss_slopes(rows.loss.name, forest.scores, rows.targets)
            forest.step(*tree_gradients(now, slopes))
        if progress is not None:
            progress(round_ + 1, rounds or settings.rounds)
    return Trees.read([forest.text() for forest in forests], start, X.shape[1])


class _Forest:
    """Trees that grow on some of the rows, and their scores of all rows."""

    def __init__(
        self,
        X: Any,
        own: np.ndarray,  # [n], which rows it grows on
        parameters: Mapping[str, Any],
        start: np.ndarray,
        categorical: Sequence[int],
    ) -> None:
        lightgbm = load_lightgbm()
        classes = {"num_class": len(start)} if len(start) > 1 else {}
        parameters = {**parameters, **classes, "objective": "none", "metric": "none"}
        columns = list(categorical) or "auto"
        data = lightgbm.Dataset(X[own], params=parameters, categorical_feature=columns)
        self.booster = lightgbm.Booster(parameters, data)
        self._seen = own
        if not own.all():
            other = lightgbm.Dataset(X[~own], reference=data, params=parameters)
            self.booster.add_valid(other, "other half")
        self._start = start
        self._can_split = not _has_no_columns(self.booster.model_to_string())
        self.scores = np.tile(start, (len(X), 1))  # [n, C]

    def step(self, gradient: np.ndarray, curvature: np.ndarray) -> None:  # [n, C] each
        """Grow one tree per score."""
        if not self._can_split:
            return
        wide = gradient.shape[1] > 1
        own = [part[self._seen] if wide else part[self._seen, 0] for part in (gradient, curvature)]
        self.booster.update(fobj=lambda scores, data: tuple(own))
        self.booster.eval_train(lambda scores, data: self._keep(scores, self._seen))
        if not self._seen.all():
            self.booster.eval_valid(lambda scores, data: self._keep(scores, ~self._seen))

    def text(self) -> str:
        """Return the text in LightGBM's format; trees have no split if no column can be split."""
        if self._can_split:
            return str(self.booster.model_to_string())
        trees = [
            f"Tree={number}\nnum_leaves=1\nnum_cat=0\nleaf_value=0\nis_linear=0\nshrinkage=1\n\n"
            for number in range(len(self._start))
        ]
        return "\n".join(["tree", "version=v4", "", *trees, END, ""])

    def _keep(self, scores: np.ndarray, rows: np.ndarray) -> tuple[str, float, bool]:
        """Keep the scores of some rows; LightGBM calls this as a measure."""
        self.scores[rows] = self._start + _as_table(scores)
        return "kept", 0.0, True


def _has_no_columns(text: str) -> bool:
    """Return whether LightGBM can split no column: too few rows, or constant columns."""
    (infos,) = (line for line in text.splitlines() if line.startswith("feature_infos="))
    return set(infos.partition("=")[2].split(" ")) == {"none"}


def _as_table(scores: np.ndarray) -> np.ndarray:  # [n] or [n, C] -> [n, C]
    return scores[:, None] if scores.ndim == 1 else scores


def _start(rows: WeightedRows, weights: RowWeights, outputs: int) -> np.ndarray:  # [C]
    """The best constant score without a penalty, where LightGBM's own objectives start too."""
    share = weights.plain / weights.plain.sum()
    if rows.loss.name == "squared":
        return np.array([share @ rows.targets])
    if rows.loss.name == "logistic":
        chance = np.clip(share @ rows.targets, 1e-12, 1 - 1e-12)
        return np.array([np.log(chance / (1 - chance))])
    return np.log(np.bincount(rows.targets, share, outputs).clip(1e-12))

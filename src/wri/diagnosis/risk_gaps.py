"""Gaps of risks and of weighted risks between pairs of environments.

    R_i − R_j,     R_i = E_i[l]                       zero: risk invariance
    R_ij − R_ji,   R_ij = E_i[w_ij l] / E_i[w_ij]     zero: weighted risk invariance

with overlap weights w_ij = p_j / (p_i + p_j) of the columns that `on` names. Risks may differ
because one environment has harder cases. The two sides of a weighted gap have the same cases: they
differ only if a relation to y does. `resampled_risks` computes gaps and simultaneous intervals.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wri.diagnosis.inputs import (
    Diagnosis,
    listed,
    make_cells,
    number_blocks,
    refuse_weights,
    short_labels,
)
from wri.diagnosis.losses import LeftOutLosses, advise, compare_left_out, loss_unit, model_losses
from wri.diagnosis.overlap import FEW_ROWS, LEAST_OVERLAP
from wri.diagnosis.resampled_risks import compare, weighted_risks
from wri.diagnosis.weights import environment_logs, overlap_logs, pair_overlap
from wri.errors import InputError
from wri.number_text import write_loss, write_number
from wri.report import style
from wri.rows import number_environments, refuse_missing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PAIRS = 18
"""Largest number of pairs in a figure."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RiskGaps(Diagnosis):
    """Result of `risk_gaps`: gaps of a model between environments, with simultaneous intervals.

    Attributes
    ----------
    labels : ndarray of shape (E,)
        Labels of the environments.
    pairs : ndarray of shape (P, 2)
        Numbers i and j of the environments of each pair.
    risks : ndarray of shape (E,)
        Mean loss per environment.
    gaps : ndarray of shape (P,)
        R_i − R_j.
    errors : ndarray of shape (P,)
        Standard errors of the gaps.
    intervals : ndarray of shape (P, 2)
        Intervals of the gaps.
    weighted_gaps : ndarray of shape (P,)
        R_ij − R_ji.
    weighted_errors : ndarray of shape (P,)
        Standard errors of the weighted gaps.
    weighted_intervals : ndarray of shape (P, 2)
        Intervals of the weighted gaps.
    effective_rows : ndarray of shape (P,)
        Effective number of rows of the side with fewer.
    overlap : ndarray of shape (P,)
        Overlap ρ_ij.
    level : float
        Level at which all intervals of one kind hold together.
    on : str
        "outputs" or "given".
    unit : str
        Unit of the losses.
    left_out : LeftOutLosses or None, default=None
        Losses of the model and of `against` at environments left out.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from wri.diagnosis import risk_gaps
    >>> random = np.random.default_rng(0)
    >>> site = np.repeat(["a", "b"], 200)
    >>> X = random.normal(size=(400, 1))
    >>> y = X[:, 0] + np.where(site == "a", 0.5, 2.0) * random.normal(size=400)
    >>> found = risk_gaps(LinearRegression().fit(X, y), X, y, site, draws=99)
    >>> found.risk_invariant, found.weighted_risk_invariant
    (False, False)
    """

    labels: np.ndarray  # [E]
    pairs: np.ndarray  # [P, 2], indices of `labels`
    risks: np.ndarray  # [E]
    gaps: np.ndarray  # [P], R_i − R_j
    errors: np.ndarray  # [P]
    intervals: np.ndarray  # [P, 2]
    weighted_gaps: np.ndarray  # [P], R_ij − R_ji
    weighted_errors: np.ndarray  # [P]
    weighted_intervals: np.ndarray  # [P, 2]
    effective_rows: np.ndarray  # [P], of the side with fewer
    overlap: np.ndarray  # [P], ρ_ij
    level: float
    on: str  # "outputs" or "given"
    unit: str
    left_out: LeftOutLosses | None = None  # losses of the model and of `against` at sites left out

    @property
    def judged(self) -> np.ndarray:  # [P]
        """Whether each pair overlaps enough to compare its weighted risks."""
        return _can_judge(self.effective_rows, self.overlap)

    @property
    def risk_invariant(self) -> bool:
        """Whether all intervals of R_i − R_j contain zero."""
        return not (_clearance(self.intervals) > 0).any()

    @property
    def weighted_risk_invariant(self) -> bool:
        """Whether some pairs can be judged, and all their intervals of R_ij − R_ji contain zero."""
        clear = _clearance(self.weighted_intervals[self.judged]) > 0
        return len(clear) > 0 and not clear.any()

    @property
    def meaning(self) -> str:
        """The result and, where it was measured, what to do, in plain words."""
        parts = [self._finding() if self.judged.any() else "No weighted risks can be compared."]
        if self.left_out is not None:
            name = self.left_out.model
            leads = (
                f"Fit {name} instead",
                f"{name} is no remedy",
                f"{name} makes no clear difference",
            )
            parts.append(advise(self.left_out, *(f"{lead}: with it" for lead in leads)))
        pairs = tuple(f"({i} and {j})" for i, j in self.labels[self.pairs[~self.judged]])
        if pairs:
            parts.append(f"Pairs with too little overlap to be judged: {listed(pairs, 4)}.")
        return " ".join(parts)

    def _finding(self) -> str:
        """Describe the gaps."""
        most = np.abs(self.weighted_intervals[self.judged]).max()
        bound = (
            f"at {write_number(100 * self.level)} % confidence no weighted gap exceeds "
            f"{write_loss(most, self.unit)}, beside a mean risk of "
            f"{write_loss(float(self.risks.mean()), self.unit)}"
        )
        if self.weighted_risk_invariant and self.risk_invariant:
            return (
                "No sign against the model: risks and weighted risks agree between sites up to "
                f"chance, and {bound}. A smaller gap would need more rows to be found."
            )
        if self.weighted_risk_invariant:
            return (
                "Some sites have harder cases: the risk is higher at "
                f"{self._worst(self.intervals)}. The model itself shows no fault: {bound}. Equal "
                "risks, as VREx asks for, would be wrong here."
            )
        judged = np.where(self.judged[:, None], self.weighted_intervals, 0)
        same = "The same prediction means" if self.on == "outputs" else "Cases alike in `on` mean"
        hidden = " Plain risks hide it: harder cases and changed relations cancel."
        return (
            f"{same} different things: the weighted risk is higher at {self._worst(judged)}."
            f"{hidden if self.risk_invariant else ''} The model uses something whose relation to "
            "the target changes; changing_features looks for it and measures whether to leave it "
            "out."
        )

    def _worst(self, intervals: np.ndarray) -> str:
        """Describe the pair whose interval is farthest from zero, the higher risk first."""
        worst = int(_clearance(intervals).argmax())
        (i, j), (low, high) = self.labels[self.pairs[worst]], intervals[worst]
        if low < 0:
            i, j, low, high = j, i, -high, -low
        factor = 1 if self.unit == "nats" else 100
        return (
            f"{i} than at {j} by {write_loss((low + high) / 2, self.unit)} "
            f"({write_number(factor * low, 2)} to {write_number(factor * high, 2)})"
        )

    def plot(self, most: int = MOST_PAIRS, ax: "Axes | None" = None) -> "Figure":
        """Draw both gaps of the pairs of environments, the largest on top.

        Parameters
        ----------
        most : int, default=18
            Number of pairs shown. Pairs with the clearest weighted gap come first, then those with
            the clearest plain gap; pairs with too little overlap come last.
        ax : Axes or None, default=None
            Axes to draw on. None makes a new figure, at most 9 inches high.

        Returns
        -------
        figure : Figure
            Figure of the axes.
        """
        weighted, plain = _clearance(self.weighted_intervals), _clearance(self.intervals)
        order = np.lexsort([-plain, -np.where(self.judged, weighted, -np.inf)])
        shown, labels = order[:most], short_labels(self.labels, 20)
        names = [f"{labels[i]} − {labels[j]}" for i, j in self.pairs[shown]]
        height = min(9, 1.3 + 0.4 * len(shown))
        with style.figure(max(style.NARROW, 3.6 + 0.07 * max(map(len, names))), height) as drawn:
            axes = drawn.subplots() if ax is None else ax
            self._draw(axes, shown, names)
        return style.figure_of(axes)

    def _draw(self, axes: "Axes", shown: np.ndarray, names: list[str]) -> None:
        judged, factor = self.judged[shown], 1 if self.unit == "nats" else 100
        weighted = (0.15, self.weighted_gaps[shown], self.weighted_intervals[shown])
        plain = (-0.15, self.gaps[shown], self.intervals[shown])
        series = (
            ("risks", style.BLUE, style.BLUE, *plain, np.ones(len(shown), bool)),
            ("weighted risks", style.VERMILLION, style.VERMILLION, *weighted, judged),
            ("weighted, too little overlap", style.VERMILLION, "white", *weighted, ~judged),
        )
        axes.axvline(0, color=style.GREY, linewidth=0.8)
        for name, line, face, offset, gaps, intervals, chosen in series:
            heights = np.flatnonzero(chosen) + offset
            if len(heights):
                axes.hlines(heights, *(factor * intervals[chosen]).T, color=line)
                at = factor * gaps[chosen]
                axes.scatter(at, heights, 18, face, edgecolors=line, label=name, zorder=3)
        style.name_lines(axes, names)
        unit = "nats" if factor == 1 else "% of the variance of the target"
        axes.set_xlabel(f"gap, {unit}\n({write_number(100 * self.level)} % for all pairs together)")
        hidden = len(self.pairs) - len(shown)
        if hidden:
            axes.set_title(f"{hidden} pairs whose gaps are less clear are not shown", loc="left")
        above = (0, 1.06 if hidden else 1.01)
        axes.legend(loc="lower left", bbox_to_anchor=above, ncols=2, borderaxespad=0)


def risk_gaps(
    model: Any,
    X: Any,
    y: Any,
    groups: Iterable[Any],
    on: Any = "outputs",
    level: float = 0.95,
    draws: int = 999,
    seed: int = 0,
    blocks: Iterable[Any] | None = None,
    against: Any = None,
    *,
    sample_weight: Any = None,
) -> RiskGaps:
    """Test whether the risks and weighted risks of a fitted model agree between environments.

    Give rows that the model was not trained on: on its own training rows a model looks invariant.
    Between identical environments the probability that any interval misses zero is 1 − level, for
    each kind of gap. Dependent rows need `blocks`.

    Parameters
    ----------
    model : fitted estimator
        Classifier (log-loss in nats) or regressor (squared error as share of the variance of y).
    X : DataFrame or array-like of shape (n_rows, n_features)
        Rows as the model takes them.
    y : array-like of shape (n_rows,)
        Classes or numbers.
    groups : iterable of shape (n_rows,)
        Environment of each row, any hashable labels.
    on : "outputs" or array-like of shape (n_rows, F), default="outputs"
        In what rows must agree to be compared. "outputs": the model's predictions. An array: for
        instance the columns assumed to be causes; all columns test y given X and not the model.
    level : float, default=0.95
        Level at which all intervals of one kind hold together.
    draws : int, default=999
        Number of permutations of the losses.
    seed : int, default=0
        Seed of the permutations and the folds.
    blocks : iterable of shape (n_rows,) or None, default=None
        Block of each row: week, patient, ward. Rows of one block may depend on each other, rows of
        different blocks may not. None: each row is its own block.
    against : estimator or None, default=None
        Another estimator, such as `WRIClassifier()`. Clones of both are fitted with each
        environment left out in turn; `left_out` holds their losses there.
    sample_weight : None, default=None
        Refused. To give rows weights, repeat them and let `blocks` name the original row.

    Returns
    -------
    result : RiskGaps
        Result with `meaning` and `plot()`.

    Raises
    ------
    InputError
        If there are fewer than two environments, an option is out of range, or `sample_weight` is
        given.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from wri.diagnosis import risk_gaps
    >>> random = np.random.default_rng(0)
    >>> X = random.normal(size=(400, 1))
    >>> y = X[:, 0] + random.normal(size=400)
    >>> found = risk_gaps(LinearRegression().fit(X, y), X, y, np.repeat(["a", "b"], 200), draws=99)
    >>> found.weighted_risk_invariant
    True
    """
    refuse_weights(sample_weight)
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, not {level}")
    if draws < 2:
        raise InputError(f"draws must be at least 2, not {draws}; 999 are enough")
    said = model_losses(model, X, y)
    environments = number_environments(groups, "groups", len(said.losses))
    if len(environments.labels) < 2:
        raise InputError("groups name one environment; at least two are needed to compare")
    block = number_blocks(blocks, len(said.losses))
    by_outputs = isinstance(on, str) and on == "outputs"
    seen = said.outputs if by_outputs else _read_columns(on, len(said.losses))
    left_out = None
    if against is not None:
        name = type(against).__name__
        left_out = compare_left_out((model, X), (against, X), y, environments, name)
    logs = environment_logs(seen, environments, seed=seed, block=block)
    logs = overlap_logs(logs, environments.number)
    cells = make_cells(environments, block, seed=seed)
    same = said.expected if by_outputs else np.zeros(len(said.losses))  # h
    risks = weighted_risks(said, same, logs, environments.rows, cells)
    drawn = risks.permute(draws, np.random.default_rng(seed))
    i, j = np.triu_indices(len(environments.labels), 1)
    shared, worth = pair_overlap(logs, environments)  # [E, E] both
    overlap, effective = shared[i, j], np.minimum(worth[i, j], worth[j, i])  # [P]
    plain = compare(risks, drawn, (i, i), (j, j), level, np.ones(len(i), bool))
    weighted = compare(risks, drawn, (i, j), (j, i), level, _can_judge(effective, overlap))
    return RiskGaps(
        labels=environments.labels,
        pairs=np.stack([i, j], 1),
        risks=risks.found.diagonal(),
        gaps=plain[0],
        errors=plain[1],
        intervals=plain[2],
        weighted_gaps=weighted[0],
        weighted_errors=weighted[1],
        weighted_intervals=weighted[2],
        effective_rows=effective,
        overlap=overlap,
        level=level,
        on="outputs" if by_outputs else "given",
        unit=loss_unit(model),
        left_out=left_out,
    )


def _can_judge(effective_rows: np.ndarray, overlap: np.ndarray) -> np.ndarray:  # [P]
    """Return whether each pair overlaps enough to compare its weighted risks."""
    return (effective_rows >= FEW_ROWS) & (overlap >= LEAST_OVERLAP)


def _read_columns(on: Any, n: int) -> np.ndarray:  # [n, F]
    try:
        seen = np.asarray(on, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f'on must be "outputs" or hold numbers ({error})') from error
    seen = seen[:, None] if seen.ndim == 1 else seen
    if seen.shape[:1] != (n,) or seen.ndim != 2:
        raise InputError(f"on must be columns, [{n}, F], not of the shape {seen.shape}")
    refuse_missing(seen, None, "on")
    return seen


def _clearance(intervals: np.ndarray) -> np.ndarray:  # [P, 2] -> [P]
    """Return the distance of intervals from zero; negative if they contain it."""
    return np.maximum(intervals[:, 0], -intervals[:, 1])

"""Gaps of risks and of weighted risks between pairs of environments.

    R_i − R_j,     R_i = E_i[l]                       zero: risk invariance
    R_ij − R_ji,   R_ij = E_i[w_ij l] / E_i[w_ij]     zero: weighted risk invariance

with overlap weights w_ij = p_j / (p_i + p_j) of the columns that `on` names. Risks may differ
because one environment has harder cases. The two sides of a weighted gap have the same cases: they
differ only if a relation to y does. A weighted gap is estimated by

    Σ w_ij (l − h) / Σ w_ij  −  Σ w_ji (l − h) / Σ w_ji

for any h of what the weights see: both sides have the same cases, so h has the same mean on both.
With h = E[l | x] by the model's own probabilities, errors of the weights matter only as far as the
model is miscalibrated; with h = 0 cases that the weights do not match count as a gap.

    ψ_b = Σ_{rows of b} w (l − h − R) / Σ w        what cell b adds to a risk
    SE² = max(Σ_b (ψ_ij − ψ_ji)² m / (m − 1), Σ w_ij² v / (Σ w_ij)² + the same of ji)

with v = Var[l | x]: the variance that the model's probabilities predict for failures not yet seen.

Chance comes from permutations: cells exchange their losses l, or l − h, between all environments
and keep their weights, and |gap*| / SE* is computed as above. Between identical environments this
is exact, however skewed the losses and unequal the sizes; as SE* is computed anew, it also holds
for many rows where losses spread more in one environment than in another (Janssen, 1997). Pairs
with a small environment have wider tails, so every pair has a scale of its own:

    interval of pair p: gap ± c · q_p · SE,   q_p a quantile of |gap*| / SE* of this pair,
    c the quantile of the largest |gap*| / SE* / q_p: all intervals of one kind hold together
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wri.diagnosis.inputs import (
    BlockCells,
    Diagnosis,
    listed,
    make_cells,
    number_blocks,
    short_labels,
)
from wri.diagnosis.losses import (
    LeftOutLosses,
    ModelLosses,
    advise,
    compare_left_out,
    loss_unit,
    model_losses,
)
from wri.diagnosis.overlap import FEW_ROWS, LEAST_OVERLAP
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
MOST_SCALES = 5
"""A pair's own quantile is that of level 1 − (1 − level) / pairs, of at most so many pairs."""
_CHUNK = 4_000_000  # cells permuted at once
_TINY = np.finfo(np.float32).tiny

Entries = tuple[np.ndarray, np.ndarray]
"""i and j, each `[P]`."""


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
                "There is no sign of a fault in the model: between sites, risks and weighted risks "
                f"differ by no more than chance, and {bound}. More rows are needed to find a "
                "smaller gap."
            )
        if self.weighted_risk_invariant:
            return (
                "Some sites have harder cases: the risk is higher at "
                f"{self._worst(self.intervals)}. There is no sign of a fault in the model: "
                f"{bound}. A penalty on unequal risks, such as that of VREx, would be wrong here."
            )
        judged = np.where(self.judged[:, None], self.weighted_intervals, 0)
        same = "The same prediction means" if self.on == "outputs" else "Cases alike in `on` mean"
        hidden = " Plain risks hide it: harder cases and changed relations cancel."
        return (
            f"{same} different things: the weighted risk is higher at {self._worst(judged)}."
            f"{hidden if self.risk_invariant else ''} The model uses columns whose relation to the "
            "target changes. changing_features looks for them, and measures whether to leave them "
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

    Returns
    -------
    result : RiskGaps
        Result with `meaning` and `plot()`.

    Raises
    ------
    InputError
        If there are fewer than two environments, or an option is out of range.

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


@dataclass(frozen=True, eq=False, kw_only=True)
class WeightedRisks:
    """Weighted risks of i towards j, minus h; plain risks on the diagonal."""

    found: np.ndarray  # [E, E]
    least: np.ndarray  # [E, E], variances by the model's probabilities
    parts: np.ndarray  # [m, E], ψ of every cell, whose own environment is i
    shares: np.ndarray  # [m, E], of Σ w
    means: np.ndarray  # [3, m], of every cell: l, l − h and v over its number of rows
    cells: BlockCells

    def variances(self) -> np.ndarray:  # [E, E]
        """Return the variance of each risk."""
        return np.stack(
            [
                np.square(self.parts[own]).sum(0) * len(own) / max(len(own) - 1, 1)
                for own in self._cells()
            ]
        )

    def covariances(self, plain: bool) -> np.ndarray:  # [E, E]
        """Return covariances of R_ij and R_ji, or of R_i and R_j, by blocks that they share."""
        crossed = np.zeros_like(self.found)
        block, order = self.cells.block, np.argsort(self.cells.block, kind="stable")
        many = np.flatnonzero(np.bincount(block) > 1)
        edges = np.searchsorted(block[order], np.stack([many, many + 1]))
        for start, end in edges.T:
            own = order[start:end]
            e = self.cells.environment[own]
            parts = self.parts[np.ix_(own, e)]  # a row's own environment is on the diagonal
            parts = np.diag(parts)[:, None] if plain else parts
            crossed[np.ix_(e, e)] += parts * parts.T
        np.fill_diagonal(crossed, 0)
        return crossed

    def permute(self, draws: int, random: np.random.Generator) -> np.ndarray:  # [3, R, E, E]
        """Compute risks, variances and `least` `draws` times with the cells' losses exchanged."""
        count, number = len(self.found), len(self.shares)
        found = np.empty((3, draws, count, count), np.float32)
        means = self.means - self.means.mean(1, keepdims=True) * [[1], [1], [0]]
        losses, apart, least = means.astype(np.float32)  # [m] each
        step = max(1, _CHUNK // number)
        for start in range(0, draws, step):
            of = np.tile(np.arange(number), (min(step, draws - start), 1))
            of = random.permuted(of, axis=1)  # [R, m]
            at = slice(start, start + step)
            for e, own in enumerate(self._cells()):
                shares, here = self.shares[own].astype(np.float32), of[:, own]
                for values, j in ((apart, slice(None)), (losses, slice(e, e + 1))):
                    found[:2, at, e, j] = _weighted_means(values[here], shares[:, j])
                found[2, at, e] = least[here] @ shares**2
        return found

    def _cells(self) -> list[np.ndarray]:
        return [self.cells.of_environment(e) for e in range(len(self.found))]


def weighted_risks(
    model: ModelLosses,
    same: np.ndarray,  # [n], h
    log_weights: np.ndarray,  # [n, E], log w_ij; all the same where j is the row's own i
    rows_of: list[np.ndarray],
    cells: BlockCells,
) -> WeightedRisks:
    """Return the risks of all environments towards each other, and the part of each cell."""
    count = len(rows_of)
    found, least = np.empty((2, count, count))
    parts, shares = np.empty((2, len(cells.block), count))
    means = np.empty((3, len(cells.block)))
    for own, rows in enumerate(rows_of):
        logs = log_weights[rows]
        weights = np.exp(logs - logs.max(0))  # [n_i, E], in units of the largest: no sum is zero
        weights /= weights.sum(0)
        losses = np.repeat((model.losses - same)[rows, None], count, 1)  # [n_i, E]
        losses[:, own] = model.losses[rows]
        found[own] = (weights * losses).sum(0)
        least[own] = model.variance[rows] @ np.square(weights)
        within, at = cells.take(rows), cells.of_environment(own)
        parts[at], shares[at] = within.sum(weights * (losses - found[own])), within.sum(weights)
        each = np.stack([model.losses, model.losses - same, model.variance], 1)[rows]
        sums, size = within.sum(each), within.sum(np.ones(len(rows)))
        means[:, at] = sums.T / [size, size, size**2]
    return WeightedRisks(
        found=found, least=least, parts=parts, shares=shares, means=means, cells=cells
    )


def compare(
    risks: WeightedRisks,
    drawn: np.ndarray,  # [3, R, E, E], from `permute`
    first: Entries,
    second: Entries,
    level: float,
    judged: np.ndarray,  # [P], the pairs that intervals must hold for together
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return gaps `[P]`, errors `[P]` and intervals `[P, 2]`, which hold together if judged."""
    gaps = risks.found[first] - risks.found[second]
    crossed = risks.covariances(plain=bool((first[0] == first[1]).all()))
    variances = risks.variances()
    seen = variances[first] + variances[second] - 2 * crossed[first[0], second[0]]
    errors = np.sqrt(np.maximum(seen, risks.least[first] + risks.least[second]))
    counted = judged & (errors > 0)
    counted = counted if counted.any() else errors > 0
    share = 1 - (1 - level) / min(max(counted.sum(), 1), MOST_SCALES)
    ratios = _permuted_ratios(drawn, first, second)  # [R, P]
    sizes = np.quantile(ratios, share, axis=0, method="higher")
    ratios /= np.maximum(sizes, _TINY)
    largest = (ratios * counted).max(1)
    half = np.quantile(largest, level, method="higher") * sizes * errors
    return gaps, errors, gaps[:, None] + half[:, None] * [-1, 1]


def _weighted_means(
    values: np.ndarray, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:  # [R, m], [m, J] -> [R, J]
    """Return the means of permuted values with these weights, and their variances."""
    squares = np.square(shares)
    means = values @ shares
    spread = values**2 @ squares - 2 * means * (values @ squares) + means**2 * squares.sum(0)
    return means, np.maximum(spread, 0) * len(shares) / max(len(shares) - 1, 1)


def _permuted_ratios(drawn: np.ndarray, first: Entries, second: Entries) -> np.ndarray:
    """Return |gap*| / SE*, `[R, P]`."""
    risks, variances, least = drawn
    gaps = risks[:, *first] - risks[:, *second]
    squares = variances[:, *first] + variances[:, *second]
    squares = np.maximum(squares, least[:, *first] + least[:, *second])
    return np.abs(gaps) / np.sqrt(np.maximum(squares, _TINY))

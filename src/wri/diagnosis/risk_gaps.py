"""Does a prediction mean the same everywhere? Gaps of risks and of weighted risks, pair by pair.

    R_i − R_j,     R_i = E_i[l]                       zero: risk invariance
    R_ij − R_ji,   R_ij = E_i[w_ij l] / E_i[w_ij]     zero: weighted risk invariance
    gap ± z_{1 − (1 − level)/(2P)} · SE               Bonferroni over the P pairs of either kind

with overlap weights w_ij = p_j / (p_i + p_j) of what `on` says. Risks may differ because one
environment has harder cases. The two sides of a weighted gap have the same cases: they differ only
where a relation to y does. How gaps and SE are found is told in `resampled_risks`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from wri.diagnosis.inputs import listed
from wri.diagnosis.losses import Losses, model_losses
from wri.diagnosis.overlap import (
    FEW_ROWS,
    LEAST_OVERLAP,
    environment_logs,
    pair_overlap,
)
from wri.diagnosis.resampled_risks import ResampledRisks, resampled_risks
from wri.diagnosis.weighted_moments import overlap_logs
from wri.errors import InputError, check_option
from wri.report import style
from wri.rows import Environments, number_environments, read_sites, refuse_gaps


@dataclass(frozen=True, eq=False, kw_only=True)
class RiskGaps:
    """A model's gaps between environments; the intervals of either kind hold together."""

    labels: np.ndarray  # [E]
    pairs: np.ndarray  # [P, 2], places in `labels`
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
    on: str  # "outputs", "x" or "given"
    unit: str

    @property
    def judged(self) -> np.ndarray:  # [P]
        """Whether a pair has enough in common to compare its weighted risks."""
        return (self.effective_rows >= FEW_ROWS) & (self.overlap >= LEAST_OVERLAP)

    @property
    def risk_invariant(self) -> bool:
        """Whether all intervals of R_i − R_j contain zero."""
        return not (_clearance(self.intervals) > 0).any()

    @property
    def weighted_risk_invariant(self) -> bool:
        """Whether R_ij − R_ji can be judged, and all intervals of judged pairs contain zero."""
        clear = _clearance(self.weighted_intervals[self.judged]) > 0
        return len(clear) > 0 and not clear.any()

    @property
    def meaning(self) -> str:
        """What was found and what to do, in plain words."""
        pairs = tuple(f"({i} and {j})" for i, j in self.labels[self.pairs[~self.judged]])
        unjudged = (
            f"Too little in common to be judged, see environment_overlap: {listed(pairs, 4)}."
        )
        found = self._finding() if self.judged.any() else "No weighted risks can be compared."
        return f"{found} {unjudged}" if pairs else found

    def _finding(self) -> str:
        most = np.abs(self.weighted_intervals[self.judged]).max()
        bound = (
            f"at {100 * self.level:.3g} % confidence no weighted gap exceeds {most:.2g} {self.unit}"
        )
        if self.weighted_risk_invariant and self.risk_invariant:
            return (
                "No sign against the model: risks and weighted risks agree between environments, "
                f"and {bound}. Only more rows would show a smaller one."
            )
        if self.weighted_risk_invariant:
            return (
                "Some environments have harder cases: the risk is higher at "
                f"{self._worst(self.intervals)}. The model itself shows no fault: {bound}. Equal "
                "risks, as VREx asks for, would be wrong here."
            )
        judged = np.where(self.judged[:, None], self.weighted_intervals, 0)
        finding = f"the weighted risk is higher at {self._worst(judged)}."
        if self.risk_invariant:
            finding += " Plain risks hide it: differences of cases and of meaning cancel."
        if self.on == "x":
            return (
                f"Rows with the same columns meet different outcomes: {finding} The relation of X "
                'to y changes; whether the model leans on it, on="outputs" or causes will show.'
            )
        same = "The same prediction means" if self.on == "outputs" else "Cases alike in `on` mean"
        return (
            f"{same} different things: {finding} The model uses something whose relation to y "
            "changes: find it with changing_features and drop it, or fit with WRI."
        )

    def _worst(self, intervals: np.ndarray) -> str:
        """The pair whose interval is farthest from zero, the higher risk first."""
        worst = int(_clearance(intervals).argmax())
        (i, j), (low, high) = self.labels[self.pairs[worst]], intervals[worst]
        if low < 0:
            i, j, low, high = j, i, -high, -low
        return f"{i} than at {j} by {(low + high) / 2:.2g} {self.unit} ({low:.2g} to {high:.2g})"

    def plot(self) -> Figure:
        """Forest plot of both gaps of every pair."""
        names = [f"{i} − {j}" for i, j in self.labels[self.pairs]]
        everywhere = np.ones(len(names), bool)
        weighted = (0.15, self.weighted_gaps, self.weighted_intervals)
        series = (
            ("risks", style.BLUE, style.BLUE, -0.15, self.gaps, self.intervals, everywhere),
            ("weighted risks", style.VERMILLION, style.VERMILLION, *weighted, self.judged),
            ("weighted, not to be judged", style.VERMILLION, "white", *weighted, ~self.judged),
        )
        with style.figure(5 + 0.07 * max(map(len, names)), 1.1 + 0.4 * len(names)) as drawn:
            ax = drawn.subplots()
            ax.axvline(0, color=style.GREY, linewidth=0.8)
            for name, line, face, offset, gaps, intervals, shown in series:
                places = np.flatnonzero(shown) + offset
                if len(places):
                    ax.hlines(places, *intervals[shown].T, color=line)
                    ax.scatter(gaps[shown], places, 18, face, edgecolors=line, label=name, zorder=3)
            ax.set_yticks(range(len(names)), names)
            ax.set_ylim(len(names) - 0.5, -0.5)
            ax.set_xlabel(f"gap, {self.unit} ({100 * self.level:.3g} % for all pairs together)")
            drawn.legend(loc="outside upper center", ncols=3)
        return drawn


def risk_gaps(
    model: Any,
    X: Any,
    y: Any,
    groups: Iterable[Any],
    on: Any = "outputs",
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> RiskGaps:
    """Whether a fitted model's risks and weighted risks agree between environments.

    Give rows that the model was not trained on: on its own training rows a model looks invariant.

    Parameters
    ----------
    model
        Any fitted scikit-learn classifier with `predict_proba` (log-loss in nats) or regressor
        (squared error in units of y's variance).
    X, y
        Rows in the form that the model takes, and their classes or numbers.
    groups
        The environment of every row, any hashable labels.
    on
        In what rows must be alike to be compared: "outputs", what the model says of them; an array
        `[n, F]`, such as columns held for causes; or "x", all columns, which then must be numbers.
        The last asks about y given X rather than about the model: it finds gaps of invariant
        models too, where X holds a feature that changes.
    level
        With which all intervals of one kind hold together.
    draws, seed
        Of the bootstrap; the seed also splits rows into folds for the weights.

    Returns
    -------
    RiskGaps
        Its `meaning` says what was found and what to do, its `plot()` draws it.
    """
    _check_options(level, draws)
    said, labels = model_losses(model, X, y), list(groups)
    environments = number_environments(labels, "groups", len(said.losses))
    if len(environments.labels) < 2:
        raise InputError("groups name one environment; at least two are needed to compare")
    alike = _choose_columns(on, said, X, labels)
    logs = overlap_logs(environment_logs(alike.seen, environments, seed=seed), environments.number)
    random = np.random.default_rng(seed)
    risks = resampled_risks(said, alike.expected, logs, environments, draws, random)
    return _compare_pairs(risks, logs, environments, level, alike.on, said.unit)


def _compare_pairs(
    risks: ResampledRisks,
    logs: np.ndarray,  # [n, E], log w_ij
    environments: Environments,
    level: float,
    on: str,
    unit: str,
) -> RiskGaps:
    """Both gaps of every pair of environments, with intervals that hold together."""
    overlap, worth = pair_overlap(logs, environments)
    i, j = np.triu_indices(len(environments.labels), 1)
    quantile = NormalDist().inv_cdf(1 - (1 - level) / (2 * len(i)))
    plain = risks.gaps((i, i), (j, j), quantile)
    weighted = risks.gaps((i, j), (j, i), quantile)
    return RiskGaps(
        labels=environments.labels,
        pairs=np.stack([i, j], 1),
        risks=risks.found.diagonal(),
        gaps=plain.gaps,
        errors=plain.errors,
        intervals=plain.intervals,
        weighted_gaps=weighted.gaps,
        weighted_errors=weighted.errors,
        weighted_intervals=weighted.intervals,
        effective_rows=np.minimum(worth[i, j], worth[j, i]),
        overlap=overlap[i, j],
        level=level,
        on=on,
        unit=unit,
    )


def _check_options(level: float, draws: int) -> None:
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, not {level}")
    if draws < 2:
        raise InputError(f"draws must be at least 2, not {draws}; 1000 are enough")


class _Compared(NamedTuple):
    """In what rows must be alike to be compared."""

    on: str  # "outputs", "x" or "given"
    seen: np.ndarray  # [n, F], what the weights see
    expected: np.ndarray  # [n], h: the part of the loss that follows from it


def _choose_columns(on: Any, said: Losses, X: Any, labels: list[Any]) -> _Compared:
    if not isinstance(on, str):
        n = len(said.losses)
        return _Compared("given", _columns(on, n), np.zeros(n))
    check_option("on", on, ("outputs", "x"))
    seen = said.outputs if on == "outputs" else read_sites(X, labels).x
    return _Compared(on, seen, said.expected)


def _columns(on: Any, n: int) -> np.ndarray:
    try:
        seen = np.asarray(on, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"on must hold numbers ({error}); encode categories first") from error
    seen = seen[:, None] if seen.ndim == 1 else seen
    if seen.shape[:1] != (n,) or seen.ndim != 2:
        raise InputError(f"on must be columns, [{n}, F], not of the shape {seen.shape}")
    refuse_gaps(seen, None, "on")
    return seen


def _clearance(intervals: np.ndarray) -> np.ndarray:  # [P, 2] -> [P]
    """How far intervals lie from zero; negative where they contain it."""
    return np.maximum(intervals[:, 0], -intervals[:, 1])

"""Theorem 1: in linear regression, weighted risk invariance discards spurious dimensions.

Everything is computed in the population: the paper's equation 5 with Gaussian X_inv has weighted
moments in closed form, under exact invariant densities and under ratios to the first environment.
Gaps are relative to the weighted risk of predicting zero.

Chosen here, since the paper has no such experiment: two invariant dimensions, one to five spurious
ones and two to seven environments from `LinearGaussian.random`. The gaps' squares are minimised
from standard normal starts; a root mean square gap below 1e-12 tells a zero from a local minimum,
and |w_spu| above 0.01 a spurious predictor from an invariant one. Where no start ends in a spurious
zero, the predictor that `smallest_spurious_gap` finds is tried as well. Every w with w_spu = 0 is a
zero, the constant predictor too, so weighted risk invariance leaves the choice among them to the
risk: the mean risk + λ·Σ gaps² is therefore followed from ERM, λ = 0, to λ = 1e8.

General position is checked at the paper's counts, the fewest environments with |E| > d_spu (the
theorem) and C(k, 2) > 2 d_spu (the definition), and where it first holds under ratio weights; see
`wri.diagnosis.position` for what it certifies. Singular values are minimised from 50
starts, and again from 150 others to see what 50 miss. The full size has 1000 draws (200 under
density weights), 30 couplings and 30 starts; the quick one 30, 6, 6 and 10.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import comb
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wri.diagnosis import position
from wri.diagnosis.position import (
    EXACT,
    ClosedForm,
    WeightedMoments,
    gaussian_moments,
    least_squares,
)
from wri.paper.experiments import ExperimentTask
from wri.paper.result import Result, ResultCell, make_line
from wri.paper.simulations import LinearGaussian
from wri.report import style

D_INV, SPURIOUS, ENVIRONMENTS = 2, range(1, 6), range(2, 8)
WEIGHTINGS: tuple[ClosedForm, ...] = ("ratio", "density")
ZERO_GAP, SMALL = 1e-12, 1e-2  # of a solution's gap, and of |w_spu|
STRENGTHS = 10.0 ** np.arange(0, 9, 2)  # λ
PARAMETERS = (
    *("weights", "invariant_mean", "invariant_covariance"),
    *("spurious_slope", "spurious_covariance"),
)
Residuals = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
Search = Callable[..., tuple[np.ndarray, ...]]


class DescentEnds(NamedTuple):
    """End points of the starts for one weighting, with d_spu dimensions and k environments."""

    gap: np.ndarray  # [couplings, starts + 1], the last from what `smallest_spurious_gap` finds
    spurious: np.ndarray  # [couplings, starts + 1], |w_spu|
    exists: bool  # a spurious predictor with equal weighted risks, in any coupling

    @property
    def largest(self) -> float:
        """Return |w_spu| of a coupling's most spurious zero; the median over couplings."""
        zeros = np.where(self.gap < ZERO_GAP, self.spurious, 0)
        reached = zeros[:, :-1].max(1)
        return float(np.median(np.where(reached > SMALL, reached, zeros[:, -1])))


AllEnds = dict[tuple[ClosedForm, int, int], DescentEnds]  # by weighting, d_spu and environments


def run(task: ExperimentTask) -> list[Result]:
    n, starts, draws = (30, 30, 1000) if task.full else (6, 10, 30)
    cells = [(w, d, k) for w in WEIGHTINGS for d in SPURIOUS for k in ENVIRONMENTS]
    steps = len(cells) + 2 * len(SPURIOUS)
    ends: AllEnds = {}
    for cell in cells:
        ends[cell] = solve(*cell, n, starts, task.seed)
        task.progress(len(ends), steps)
    penalties, positions, singular, values = [], [], [], {}
    for d in SPURIOUS:
        penalties += penalty_rows(d, n, task.seed)
        positions += position_rows(d, draws, task.seed)
        task.progress(len(cells) + 2 * d - 1, steps)
        values[d], line = singular_values(d, draws, task.seed)
        singular += line
        task.progress(len(cells) + 2 * d, steps)
    found = enough_rows(ends) + size_rows(ends) + end_rows(ends)
    rows = found + penalties + positions + singular
    return [task.make_result(rows, notes_on(ends), draw(ends, values), repetitions="couplings")]


def drawn(
    weightings: Sequence[ClosedForm], d_spu: int, k: int, n: int, seed: int, d_inv: int = D_INV
) -> list[WeightedMoments]:
    """Return moments of n random couplings for each weighting."""
    settings = [LinearGaussian.random(d_inv, d_spu, k, seed + each) for each in range(n)]
    parameters = {name: np.stack([getattr(s, name) for s in settings]) for name in PARAMETERS}
    return [gaussian_moments(noise_sd=1.0, weighting=w, **parameters) for w in weightings]


def gaps_of(moments: WeightedMoments) -> Residuals:
    """Return relative gaps of predictors `[N, S, d]`, and their derivatives."""
    second, cross, target = moments.differences()

    def gaps(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        product = np.einsum("npab,nsb->nspa", second, w, optimize=True)
        slope = cross[:, None]
        value = ((product - 2 * slope) * w[:, :, None]).sum(-1) + target[:, None]
        return value, 2 * (product - slope)  # [N, S, P], [N, S, P, d]

    return gaps


def solve(weighting: ClosedForm, d_spu: int, k: int, n: int, starts: int, seed: int) -> DescentEnds:
    """Minimise the squared gaps of n couplings from random starts."""
    (moments,) = drawn([weighting], d_spu, k, n, seed)
    smallest, nearest = position.smallest_spurious_gap(moments, range(D_INV, D_INV + d_spu))
    random = np.random.default_rng([seed, d_spu, k]).normal(size=(n, starts, D_INV + d_spu))
    w, squares = least_squares(gaps_of(moments), np.concatenate([random, nearest[:, None]], 1))
    sizes = np.linalg.norm(w[..., D_INV:], axis=-1)
    return DescentEnds(np.sqrt(squares / comb(k, 2)), sizes, bool((smallest < EXACT).any()))


def penalise(
    weighting: ClosedForm, d_spu: int, k: int, n: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return |w_spu| of ERM and of the mean risk + λ·Σ gaps² at the largest λ, in n couplings."""
    moments, plain = drawn([weighting, "uniform"], d_spu, k, n, seed)
    second = plain.second[:, :, 0].mean(1)  # [N, d, d]
    root = np.linalg.cholesky(second)
    erm = np.linalg.solve(second, plain.cross[:, :, 0].mean(1)[..., None]).swapaxes(1, 2)
    gaps, w = gaps_of(moments), erm  # [N, 1, d]
    for strength in STRENGTHS:
        w, _ = least_squares(partial(penalised, gaps, erm, root, np.sqrt(strength)), w)
    before, after = (np.linalg.norm(each[:, 0, D_INV:], axis=-1) for each in (erm, w))
    return before, after


def penalised(
    gaps: Residuals, erm: np.ndarray, root: np.ndarray, strength: float, w: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return residuals whose squares sum to λ·Σ gaps² and the mean risk in excess of ERM's."""
    gap, slope = gaps(w)
    values = np.concatenate([strength * gap, (w - erm) @ root], 2)
    return values, np.concatenate([strength * slope, root.swapaxes(1, 2)[:, None]], 2)


def search(
    find: Search,
    weighting: ClosedForm,
    d_spu: int,
    k: int,
    n: int,
    seed: int,
    d_inv: int = D_INV,
) -> np.ndarray:
    """Return the result of a search of `general_position` in n draws, in blocks that fit memory."""
    values = []
    for first in range(0, n, 100):
        (moments,) = drawn([weighting], d_spu, k, min(100, n - first), seed + first, d_inv)
        values.append(find(moments, range(d_inv, d_inv + d_spu))[0])
    return np.concatenate(values)


def enough(weighting: ClosedForm, d_spu: int) -> int:
    """Return the smallest number of environments with more independent gaps than unknowns."""
    if weighting == "ratio":
        return d_spu + 2
    return next(k for k in ENVIRONMENTS if comb(k, 2) > D_INV + d_spu)


def by_definition(d_spu: int) -> int:
    """Return the smallest number of environments with C(k, 2) > 2 d_spu."""
    return next(k for k in ENVIRONMENTS if comb(k, 2) > 2 * d_spu)


def by_counts(d_spu: int) -> int:
    """Return the smallest number of environments that theorem and definition both allow."""
    return max(d_spu + 1, by_definition(d_spu))


def enough_rows(ends: AllEnds) -> list[ResultCell]:
    table, rows = "environments that are enough", []
    for d in SPURIOUS:
        numbers = {"theorem: |E| > d_spu": d + 1, "definition: C(k, 2) > 2 d_spu": by_definition(d)}
        for w in WEIGHTINGS:
            spurious = [k for k in ENVIRONMENTS if ends[w, d, k].exists]
            numbers |= {f"{w}, counted": enough(w, d), f"{w}, found": max(spurious) + 1}
        rows += make_line(f"d_spu = {d}", numbers, table)
    return rows


def size_rows(ends: AllEnds) -> list[ResultCell]:
    table = f"largest |w_spu| of the solutions reached, median over couplings (0: below {SMALL:g})"
    return [
        ResultCell.of(f"{w}, d_spu = {d}", f"k = {k}", each.largest * (each.largest > SMALL), table)
        for (w, d, k), each in ends.items()
    ]


def end_rows(ends: AllEnds) -> list[ResultCell]:
    table, rows = "where random starts end (%), d_spu = 1 to 5 together", []
    for w in WEIGHTINGS:
        for label, less in (("too few", 1), ("enough", 0)):
            chosen = [ends[w, d, enough(w, d) - less] for d in SPURIOUS]
            zero = np.stack([each.gap[:, :-1] < ZERO_GAP for each in chosen])
            spurious = np.stack([each.spurious[:, :-1] > SMALL for each in chosen])
            shares = {
                "gap 0, w_spu = 0": 100 * (zero & ~spurious).mean(),
                "gap 0, w_spu ≠ 0": 100 * (zero & spurious).mean(),
                "a gap remains": 100 * (~zero).mean(),
            }
            rows += make_line(f"{w}, {label} environments", shares, table)
    return rows


def penalty_rows(d_spu: int, n: int, seed: int) -> list[ResultCell]:
    """Return ERM, and below it the penalised risk on the same couplings."""
    table = f"|w_spu| that minimises the mean risk + λ Σ gaps², λ = {STRENGTHS[-1]:.0e}"
    rows = []
    for w in WEIGHTINGS:
        for name, more in (("too few", -1), ("enough", 0), ("3 more", 3)):
            sizes = penalise(w, d_spu, enough(w, d_spu) + more, n, seed)
            for label, values in zip(("ERM", "WRI"), sizes, strict=True):
                rows.append(
                    ResultCell.of(f"d_spu = {d_spu}, {label}", f"{w}, {name}", values, table)
                )
    return rows


def position_rows(d_spu: int, draws: int, seed: int) -> list[ResultCell]:
    rank, spurious = position.smallest_singular_value, position.smallest_spurious_gap
    k, fewer = by_counts(d_spu), max(6, draws // 5)

    def share(find: Search, weighting: ClosedForm, n: int, d_inv: int = D_INV) -> float:
        return 100 * float((search(find, weighting, d_spu, k, n, seed, d_inv) < EXACT).mean())

    shares = {
        "k": k,
        "ratio: rank": share(rank, "ratio", draws),
        "ratio: spurious": share(spurious, "ratio", draws),
        "density: rank": share(rank, "density", fewer),
        "with γ a pair": share(partial(rank, one_gamma=False), "density", fewer),
        "density: spurious": share(spurious, "density", fewer),
        "with d_inv = 10": share(spurious, "density", fewer, 10),
    }
    table = "draws (%) at the paper's counts in which M loses rank, or a spurious predictor exists"
    return make_line(f"d_spu = {d_spu}", shares, table)


def singular_values(d_spu: int, draws: int, seed: int) -> tuple[np.ndarray, list[ResultCell]]:
    """Return M's smallest singular values with ratio weights, where k − 1 = 2 d_spu."""
    k, more = 2 * d_spu + 1, partial(position.smallest_singular_value, starts=150, seed=1)
    values = search(position.smallest_singular_value, "ratio", d_spu, k, draws, seed)
    others = search(more, "ratio", d_spu, k, draws, seed)
    cells = {
        "k": k,
        "smallest": values.min(),
        "median": np.median(values),
        "zero (%)": 100 * np.mean(values < EXACT),
        "smallest, 200 starts": min(values.min(), others.min()),
        "missed by 50 starts (%)": 100 * np.mean(others < 0.99 * values),
    }
    table = f"M's smallest singular value, ratio weights, k = 2 d_spu + 1, {draws} draws"
    return values, make_line(f"d_spu = {d_spu}", cells, table)


def notes_on(ends: AllEnds) -> list[str]:
    wrong = [
        f"{w} weights, d_spu = {d}, k = {by_counts(d)}"
        for w in WEIGHTINGS
        for d in SPURIOUS
        if ends[w, d, by_counts(d)].exists
    ]
    return [
        "Counted: ratio weights give k − 1 independent gaps against d_spu unknowns (w_spu and γ up "
        "to scale), density weights C(k, 2) against d_inv + d_spu. Too few is one less.",
        "A spurious predictor has equal weighted risks although the counts of the theorem and the "
        f"definition are met: {'; '.join(wrong) or 'nowhere'}.",
        "Under ratio weights M has k − 1 independent rows, so full rank takes k − 1 ≥ 2 d_spu, not "
        "the definition's count; it is sufficient, not necessary. Under density weights M can keep "
        "full rank for every γ and spurious predictors exist; with one γ per pair it never does.",
        "Every predictor with w_spu = 0 has equal weighted risks, the constant one too. With just "
        "enough environments density weights leave flat valleys and local minima of the gaps, in "
        "which some couplings stay when followed from ERM; more environments clear them.",
    ]


def draw(ends: AllEnds, values: dict[int, np.ndarray]) -> Figure:
    with style.figure(10, 3) as drawing:
        left, middle, right = drawing.subplots(1, 3)
        middle.sharey(left)
        for ax, weighting in zip((left, middle), WEIGHTINGS, strict=True):
            for d, colour in zip(SPURIOUS, style.ENVIRONMENT_COLOURS, strict=False):
                sizes = [ends[weighting, d, k].largest for k in ENVIRONMENTS]
                ax.plot(ENVIRONMENTS, sizes, "o-", ms=4, color=colour, label=f"$d_{{spu}}$ = {d}")
            ax.set(xlabel="environments", title=f"Equal weighted risks, {weighting} weights")
        left.set_ylabel("largest $|w_{spu}|$ reached, median")
        middle.legend()
        histogram(right, values)
    return drawing


def histogram(ax: Axes, values: dict[int, np.ndarray]) -> None:
    edges = np.linspace(min(np.log10(each.min()) for each in values.values()), 0.5, 25).tolist()
    for (d, each), colour in zip(values.items(), style.ENVIRONMENT_COLOURS, strict=False):
        ax.hist(np.log10(each), edges, histtype="step", color=colour, label=f"$k$ = {2 * d + 1}")
    ax.set(xlabel="log$_{10}$ of M's smallest singular value", ylabel="draws")
    ax.set_title("Ratio weights, $k = 2 d_{spu} + 1$")
    ax.legend(loc="upper left")

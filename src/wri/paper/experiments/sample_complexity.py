"""Appendix B as an experiment: how well weighted risks are estimated with three kinds of weights.

    R̂_α = mean over 1's rows of α·l,   R̂_β = mean over 2's rows of β·l,   α·p_1 = β·p_2

density (α = p_2, β = p_1), overlap (p_2/(p_1 + p_2), p_1/(p_1 + p_2)) and ratio (1, p_1/p_2). The
penalty uses the gap R̂_α − R̂_β, so its standard deviation is shown, in units of the weighted risk
R that both estimate: a factor of the weights does not change it.

Chosen here, since the appendix has no experiment: p_1 = N(0, 1) and p_2 = N(δ, 1), δ from 0 to 3,
n = 1000 rows of each; the predictor sign(x) of y = 1[x + N(0, 1) > 0] with the 0-1 loss, so
P(l = 1 | x) = Φ(−|x|). Curves are integrals over a grid; points are the spread over repeated
samples. The bound is Bernstein's for both sides at once, each failing with probability 2.5 %. Ratio
weights have no largest value, so for their bound they are cut at their 99.9th percentile; the table
shows how much of the weighted risk is cut off. The last panel adds dimensions in which the
environments agree: they change nothing for overlap and ratio weights, but each reduces the
effective sample size of density weights by a factor √3/2.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.stats import norm

from wri.diagnosis import bernstein_bound, effective_sample_size
from wri.objectives.functional import pair_weights
from wri.objectives.weighted_risks import Weighting
from wri.paper.experiments import ExperimentTask
from wri.paper.result import Result, ResultCell, Values
from wri.report import style

WEIGHTINGS: dict[Weighting, str]
WEIGHTINGS = {"density": style.BLUE, "overlap": style.GREEN, "ratio": style.ORANGE}
ROWS = 1000  # of each environment in a sample
FAILS = 0.025  # probability with which the bound of one side may fail
CUT = 0.999  # percentile of the ratio weights at which they are truncated
SHOWN = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
DIMENSIONS = range(1, 21)
GRID = np.arange(-10, 13, 0.01)
SPREAD = f"spread of the gap relative to the weighted risk, n = {ROWS}"
BOUND = "Bernstein's bound on the gap (95 %) relative to the weighted risk"
EFFECTIVE = "effective sample size, % of n"


class WeightingIntegrals(NamedTuple):
    """Integrals for one weighting at one distance."""

    spread: float  # standard deviation of the gap, relative to R
    bound: float  # Bernstein's for the gap, relative to R
    cut: float  # share of R that truncation for the bound removes
    effective: float  # effective sample size of the worse side, as a share of n


def run(task: ExperimentTask) -> list[Result]:
    repeats, steps = (2000, 61) if task.full else (300, 31)
    random = np.random.default_rng(task.seed)
    rows: list[ResultCell] = []
    sampled: dict[tuple[Weighting, float], float] = {}
    for done, distance in enumerate(SHOWN, 1):
        for weighting, (spread, effective) in simulate(distance, repeats, random).items():
            sampled[weighting, distance] = spread
            found, by_samples = exact(weighting, distance), f"{weighting}, sampled"
            cells: list[tuple[str, Values, str]] = [
                (weighting, found.spread, SPREAD),
                (by_samples, spread, SPREAD),
                (weighting, found.bound, BOUND),
                (weighting, 100 * found.effective, EFFECTIVE),
                (by_samples, 100 * effective, EFFECTIVE),
            ]
            if weighting == "ratio":
                cells.append(("ratio, cut away (%)", 100 * found.cut, BOUND))
            column = f"δ = {distance:g}"
            rows += [ResultCell.of(line, column, values, table) for line, values, table in cells]
        task.progress(done, len(SHOWN))
    spreads = ", ".join(
        f"{weighting} {exact(weighting, 2.0).spread:.2f}" for weighting in WEIGHTINGS
    )
    notes = [
        "The paper prints no numbers for this.",
        f"Spread of the gap at δ = 2, relative to the weighted risk: {spreads}.",
        "Ratio weights have the effective share exp(−δ²), and none where the reference is √2 times "
        "as wide as the other environment, or wider: their variance is infinite there.",
        f"In 20 dimensions density weights keep {100 * density_share(20, 0.0):.0f} % of a sample "
        "even at δ = 0; overlap weights keep all.",
    ]
    drawn = draw(np.linspace(0, 3, steps), sampled)
    return [task.make_result(rows, notes, drawn, repetitions="samples")]


def weights_at(x: np.ndarray, distance: float) -> dict[Weighting, tuple[np.ndarray, np.ndarray]]:
    """Return α and β at points x, for each weighting."""
    logs = torch.tensor(np.stack([norm.logpdf(x), norm.logpdf(x, distance)]))  # [density, n]
    both = logs[:, None].expand(-1, 2, -1)  # the same points as rows of either environment
    weights = {w: pair_weights(both, w).numpy() for w in WEIGHTINGS}  # [j, i, n]
    return {w: (each[1, 0], each[0, 1]) for w, each in weights.items()}


@cache
def exact(weighting: Weighting, distance: float) -> WeightingIntegrals:
    step = GRID[1] - GRID[0]
    wrong = norm.cdf(-np.abs(GRID))  # P(l = 1 | x); l² = l
    spread = bound = cut = risk = 0.0
    effective = 1.0
    for weight, centre in zip(weights_at(GRID, distance)[weighting], (0.0, distance), strict=True):
        mass = step * norm.pdf(GRID, centre)
        risk = float(mass @ (weight * wrong))
        spread += (float(mass @ (weight**2 * wrong)) - risk**2) / ROWS
        effective = min(effective, float((mass @ weight) ** 2 / (mass @ weight**2)))
        if weighting == "ratio":  # the others are bounded already
            order = weight.argsort()
            weight = np.minimum(weight, weight[order][mass[order].cumsum() >= CUT][0])
        kept = float(mass @ (weight * wrong))
        variance = float(mass @ (weight**2 * wrong)) - kept**2
        bound += bernstein_bound(float(weight.max()), variance, ROWS, FAILS)
        cut = max(cut, 1 - kept / risk)
    return WeightingIntegrals(spread**0.5 / risk, bound / risk, cut, effective)


def simulate(
    distance: float, repeats: int, random: np.random.Generator
) -> dict[Weighting, tuple[float, np.ndarray]]:
    """Return the spread of the gap over samples, relative to R, and effective shares."""
    gaps = {weighting: np.zeros(repeats) for weighting in WEIGHTINGS}
    shares = {weighting: np.ones(repeats) for weighting in WEIGHTINGS}
    risks = dict.fromkeys(WEIGHTINGS, 0.0)
    for side, (centre, sign) in enumerate(((0.0, 1), (distance, -1))):
        x = random.normal(centre, 1, (repeats, ROWS))
        wrong = np.sign(x) != np.sign(x + random.normal(size=x.shape))
        for weighting, both in weights_at(x.ravel(), distance).items():
            weight = both[side].reshape(x.shape)
            estimates = (weight * wrong).mean(1)
            gaps[weighting] += sign * estimates
            risks[weighting] += estimates.mean() / 2
            share = effective_sample_size(weight) / ROWS
            shares[weighting] = np.minimum(shares[weighting], share)
    return {w: (float(gaps[w].std(ddof=1)) / risks[w], shares[w]) for w in WEIGHTINGS}


def density_share(dimensions: int, distance: float) -> float:
    """Effective share of density weights when all dimensions but one agree: (∫p²)²/∫p³ = √3/2."""
    return exact("density", distance).effective * (3**0.5 / 2) ** (dimensions - 1)


def draw(distances: np.ndarray, sampled: dict[tuple[Weighting, float], float]) -> Figure:
    with style.figure(10, 3.1) as drawn:
        left, middle, right = drawn.subplots(1, 3)
        for weighting, colour in WEIGHTINGS.items():
            curve = [exact(weighting, distance) for distance in distances]
            left.plot(distances, [each.spread for each in curve], color=colour, label=weighting)
            left.plot(distances, [each.bound for each in curve], color=colour, ls="--", lw=1)
            spreads = [sampled[weighting, distance] for distance in SHOWN]
            left.plot(SHOWN, spreads, "o", ms=4, color=colour)
            shares = [100 * each.effective for each in curve]
            middle.plot(distances, shares, color=colour, label=weighting)
            alike = [100 * exact(weighting, 1.0).effective] * len(DIMENSIONS)
            if weighting == "density":
                alike = [100 * density_share(dimensions, 1.0) for dimensions in DIMENSIONS]
            right.plot(DIMENSIONS, alike, color=colour)
        left.plot([], [], color="black", ls="--", lw=1, label="bound (95 %)")
        left.plot([], [], "o", ms=4, color="black", label="samples")
        left.set(yscale="log", xlabel="distance δ", ylabel="relative to the weighted risk")
        left.set_title(f"Spread of the gap, n = {ROWS}")
        middle.set(xlabel="distance δ", ylabel="% of n", ylim=(0, 102))
        middle.set_title("Effective sample size")
        right.set(xlabel="dimensions, all but one alike", ylim=(0, 102))
        right.set_title("Effective sample size at δ = 1")
        for ax in (left, middle):
            ax.legend(fontsize=7)
    return drawn

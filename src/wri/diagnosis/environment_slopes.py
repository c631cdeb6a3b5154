"""Slopes of y on all features per environment, and a test of whether they differ.

    logit p_e(y | x) = a_e + β_eᵀx     two classes
    E_e[y | x] = a_e + β_eᵀx           numbers

    β_e minimises Σ u loss + ρ/2 |β_e − β|²,   β of all rows, one offset per environment

u(x) ≤ 1 is smaller for rows far from the median of a column (`leverage_weights`): otherwise few
rows decide on the slope of a skewed or zero-inflated column, and chance cannot be estimated from
so few. Distances are counted in units of the median distance of rows that are not at the median, so
rare categories keep u = 1. u depends on x alone and is the same function in all environments: a
relation that is linear and the same everywhere stays so (Mallows, 1975).

From here on a fit is quadratic. Of a cell b (the rows of a block in e, see `inputs`) only the
sums A_b = Σ w x xᵀ and c_b = A_b β° + Σ u x (y − ŷ) are needed, w = u ŷ(1 − ŷ) or u, ŷ at β°:

    M = (Σ_b A_b + ρ)⁻¹,   M_b = (Σ A − A_b + ρ)⁻¹ and β_b without the cell
    v_k = Σ_b (0.4 M s_b + 0.6 (β_e − β_b))_k² + ρ σ² (M²)_kk,   s_b = c_b − A_b β_e

The first term of the square underestimates chance, because a fit follows its own rows. The second
term, the jackknife's, overestimates it. Their mixture has the right level in simulations. No model
of the noise is assumed. The last term is the uncertainty that the pull ρ hides: 1/ρ where an
environment holds no information about a column.

For classes β° lies between the mean of the β_e over environments and β_e itself, at the share
τ²/(τ² + v) of the way. τ² counts only the part of Q above its quantile under chance (`CLEAR`). If
it counted the part of Q above its mean, β° would also follow columns whose slopes differ by chance;
with few rows per column residuals become too small, and alarms too many (docs/results/level.md). At
the mean alone, ŷ would be wrong where a column changes much, and other columns would seem to change
too.

To test whether column k has the same slope β̄_k everywhere, T_b is the part of cell b in the slope's
score a_kᵀ(c_b − A_b β), a_k = M_k / M_kk, with β fixed to β̄_k in column k, mixed from fits with and
without the cell as above. Without a change it has mean zero, whatever its variance.

For numbers θ_e = β_e / σ_e² is tested in the same way. Its chance is that of β_e − θ̄ σ_e²: a cell's
part is the one in β_e minus θ̄ times the one in σ_e², Σ (r² − σ²) / n over its rows.

Where rows are independent, leaving out one changes M by a matrix of rank one, so no other inverse
is needed. Rows are merged to cells only after that, to save signs of the bootstrap.

Whether slopes differ between environments is tested by

    Q = Σ_e (β_e − β̃)² / v_e,   β̃ the mean with weights 1/v_e          (Cochran's)

Without a change Q is χ² with E − 1 degrees of freedom only if v is known. Here Q is compared with
its values when each cell keeps the size of its score T_b and gets a random sign, one sign per
block: the wild bootstrap under the null (Liu 1988; Cameron, Gelbach and Miller 2008).

    β*_e = Σ_b ±T_b / G,   v*_e = Σ_b (±T_b − G_b β*_e)² / (1 − G_b/G) / G² + rest,   G = Σ_b G_b

Unequal noise, skewed columns and dependence within blocks are part of T_b and so appear on both
sides. All columns and contrasts use the same signs. Values of Q are brought to one scale by the χ²
with their E − 1 degrees of freedom, and P-values are corrected step by step for the largest of the
remaining ones (Westfall and Young, 1993).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import chi2

from wri.diagnosis.inputs import BlockCells
from wri.diagnosis.site_fits import (
    PULL,
    RowFit,
    SiteFit,
    SlopeRows,
    find_offset,
    fit_logistic,
    fit_site,
    pool_classes,
    pool_numbers,
)
from wri.rows import Environments, Scaling

CLEAR = 0.05
"""Probability, over all columns, that the distance between equal slopes counts as clear."""
EXTREME = 3.0
"""Distances from a column's median that count in full, in units of the median distance."""
FALL = 1.5
"""Weights of rows farther out fall with this power of their distance."""
FEWEST_CELLS = 4
"""Cells that an environment needs to say something of chance."""
_CHUNK = 20_000_000  # signs drawn at once


@dataclass(frozen=True, eq=False, kw_only=True)
class ContrastSlopes:
    """Slopes, or natural parameters, of one contrast where an environment has enough data."""

    usable: np.ndarray  # [H], indices of these environments
    slopes: np.ndarray  # [H, D]
    errors: np.ndarray  # [H, D], √v
    information: np.ndarray  # [H, D], 1 / M_kk
    rest: np.ndarray  # [H, D], what the pull adds to v
    scores: list[np.ndarray]  # H of [m, D], T_b
    shares: list[np.ndarray]  # H of [m, D], a_kᵀ A_b a_k
    blocks: list[np.ndarray]  # H of [m], the cells' blocks


def leverage_weights(z: np.ndarray) -> np.ndarray:  # [n, D] -> [n]
    """Return the weight u of each row, below 1 if it is extreme in a column."""
    weights = np.ones(len(z))
    for column in z.T:
        apart = np.abs(column - np.median(column))
        away = apart[apart > 0]
        if len(away):
            most = EXTREME * np.median(away)
            weights = np.minimum(weights, (most / np.maximum(apart, most)) ** FALL)
    return weights


def class_slopes(sites: list[SlopeRows]) -> ContrastSlopes:
    """Return log-odds of y = 1 against 0 per unit of z."""
    offsets, pooled = pool_classes(sites)
    centres = [np.concatenate([[offset], pooled]) for offset in offsets]
    fits = []
    for site, beta, centre in zip(sites, _shrunk_fits(sites, centres), centres, strict=True):
        chance = expit(site.x @ beta)
        weights, residuals = site.trust * chance * (1 - chance), site.trust * (site.y - chance)
        fits.append(fit_site(site, weights, residuals, beta, centre))
    return _score(fits)


def number_slopes(
    z: np.ndarray, y: np.ndarray, environments: Environments, cells: BlockCells
) -> tuple[ContrastSlopes, ContrastSlopes] | None:
    """Return slopes in SD of y per unit of z, and slopes divided by the residual variance."""
    sites = usable_sites(z, Scaling.of(y).apply(y), environments, cells, leverage_weights(z))
    if len(sites) < 2:
        return None
    centre, fits = np.concatenate([[0.0], pool_numbers(sites)]), []
    for site in sites:
        n, weights = len(site.y), site.trust
        fit = fit_site(site, weights, weights * (site.y - site.x @ centre), centre, centre)
        squares, total = np.square(site.y - site.x @ fit.beta), weights.sum()
        mean = float(weights @ squares / total)
        noise = max(mean * n / max(n - len(fit.beta), 1), 1e-12)
        surplus = weights * (squares - mean) / total
        surplus = surplus if isinstance(fit, RowFit) else site.cells.sum(surplus)
        fits.append(replace(fit, noise=noise, surplus=surplus))
    return _score(fits), _score_natural(fits)


def contrast_slopes(
    z: np.ndarray, y: np.ndarray, environments: Environments, cells: BlockCells
) -> dict[str, ContrastSlopes]:
    """Return slopes of each class against the first of two, or the most frequent of several."""
    number, values = pd.factorize(y, sort=True)
    reference = 0 if len(values) == 2 else int(np.bincount(number).argmax())
    trust, found = leverage_weights(z), {}
    for k in range(len(values)):
        if k != reference:
            rows = np.flatnonzero((number == k) | (number == reference))
            within = Environments(environments.labels, environments.number[rows])
            target = (number[rows] == k).astype(float)
            sites = usable_sites(z[rows], target, within, cells.take(rows), trust[rows])
            if len(sites) > 1:
                found[f"{values[k]} against {values[reference]}"] = class_slopes(sites)
    return found


def usable_sites(
    z: np.ndarray,
    y: np.ndarray,
    environments: Environments,
    cells: BlockCells,
    trust: np.ndarray,  # [n], u
) -> list[SlopeRows]:
    """Return the environments in which y varies and there are enough cells."""
    found = []
    for e, rows in enumerate(environments.rows):
        if len(rows) and np.ptp(y[rows]) > 0:
            within = cells.take(rows)
            if len(within.block) >= FEWEST_CELLS:
                x = np.column_stack([np.ones(len(rows)), z[rows]])
                site = SlopeRows(number=e, x=x, y=y[rows], trust=trust[rows], cells=within)
                found.append(site)
    return found


def _score(fits: list[SiteFit]) -> ContrastSlopes:
    """Collect slopes, errors and scores of all environments."""
    information, slopes, noise, rest = _tabulate(fits)
    common = _mean(slopes, information / noise)  # β̄
    squares = np.stack([np.square(fit.influence()).sum(0) for fit in fits])
    bound = [fit.bound_scores(common) for fit in fits]
    return ContrastSlopes(
        usable=np.array([fit.site.number for fit in fits]),
        slopes=slopes,
        errors=np.sqrt(squares + rest),
        information=information,
        rest=rest,
        scores=[fit.sum(scores) for fit, (scores, _) in zip(fits, bound, strict=True)],
        shares=[fit.sum(shares) for fit, (_, shares) in zip(fits, bound, strict=True)],
        blocks=[fit.site.cells.block for fit in fits],
    )


def _score_natural(fits: list[SiteFit]) -> ContrastSlopes:
    """Collect slopes divided by σ², with what the estimate of σ² adds to their errors."""
    information, slopes, noise, rest = _tabulate(fits)
    common = _mean(slopes / noise, information * noise)  # θ̄
    squares, scores, shares = [], [], []
    for fit, whole in zip(fits, information, strict=True):
        assert fit.surplus is not None
        surplus = fit.surplus[:, None] * common  # of θ̄ σ²
        squares.append(np.square(fit.influence() - surplus).sum(0))
        own = fit.bound_scores(common * fit.noise)
        scores.append(fit.sum((own[0] - whole * surplus) / fit.noise))
        shares.append(fit.sum(own[1]))
    return ContrastSlopes(
        usable=np.array([fit.site.number for fit in fits]),
        slopes=slopes / noise,
        errors=np.sqrt(np.stack(squares) + rest) / noise,
        information=information,
        rest=rest / noise**2,
        scores=scores,
        shares=shares,
        blocks=[fit.site.cells.block for fit in fits],
    )


def _tabulate(
    fits: list[SiteFit],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # [H, D], [H, D], [H, 1], [H, D]
    """Return 1 / M_kk, slopes, σ² and what the pull adds to the variances."""
    noise = np.array([fit.noise for fit in fits])[:, None]
    information = np.stack([1 / np.diag(fit.inverse)[1:] for fit in fits])
    slopes = np.stack([fit.beta[1:] for fit in fits])
    pulled = np.stack([(PULL * np.square(fit.inverse)).sum(0)[1:] for fit in fits])
    return information, slopes, noise, noise * pulled


def _mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:  # [H, D] -> [D]
    total = weights.sum(0)
    return np.asarray((weights * values).sum(0) / np.where(total > 0, total, 1))


def _shrunk_fits(sites: list[SlopeRows], centres: list[np.ndarray]) -> list[np.ndarray]:
    """Return offset and slopes per environment, shrunk to their mean as far as chance explains."""
    slopes, variances = [], []
    for site, centre in zip(sites, centres, strict=True):
        beta = fit_logistic(site.x, site.y, site.trust, centre, offsets=1)
        chance = expit(site.x @ beta)
        curvature = (site.x * (site.trust * chance * (1 - chance))[:, None]).T @ site.x
        curvature += PULL * np.diag(np.arange(len(beta)) > 0)
        inverse = np.linalg.inv(curvature)
        moved = (site.x * (site.trust * (site.y - chance))[:, None]) @ inverse
        if not site.cells.independent:
            moved = site.cells.sum(moved)
        slopes.append(beta[1:])
        # the larger one: robust where the relation is not linear, the model's where y hardly varies
        modelled = np.diag(inverse) * len(site.y) / len(moved)  # a block counts as one row
        variances.append(np.maximum(modelled, np.square(moved).sum(0))[1:])
    by_chance = float(chi2.ppf(1 - CLEAR / max(len(slopes[0]), 1), len(slopes) - 1))
    mean, tau, _ = weighted_spread(np.stack(slopes), np.stack(variances), by_chance)
    found = []
    for site, beta, variance in zip(sites, slopes, variances, strict=True):
        shrunk = mean + tau**2 / (tau**2 + variance) * (beta - mean)
        offset = find_offset(site.x[:, 1:] @ shrunk, site.y, site.trust)
        found.append(np.concatenate([[offset], shrunk]))
    return found


def weighted_spread(
    slopes: np.ndarray, variances: np.ndarray, by_chance: float | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return β̃, τ and Q over the last axis but one, `[..., E, D]` to `[..., D]`.

    Q = Σ_e (β_e − β̃)² / v_e with β̃ the mean with weights 1/v_e (Cochran), and DerSimonian and
    Laird's τ² = (Q − (E − 1)) / (Σ 1/v − Σ 1/v² / Σ 1/v). `by_chance` replaces
    E − 1.
    """
    weights = 1 / variances
    total, more = weights.sum(-2), slopes.shape[-2] - 1
    average = (weights * slopes).sum(-2) / total
    q = (weights * (slopes - average[..., None, :]) ** 2).sum(-2)
    square = (q - (more if by_chance is None else by_chance)) / (
        total - (weights**2).sum(-2) / total
    )
    return average, np.sqrt(np.maximum(square, 0)), q


class SlopeSpread(NamedTuple):
    """Spread of the slopes for C contrasts and D columns."""

    average: np.ndarray  # [C, D], β̃
    tau: np.ndarray  # [C, D]
    q: np.ndarray  # [C, D]
    p: np.ndarray  # [C, D], corrected for all of them


def compare_slopes(parts: list[ContrastSlopes], draws: int, seed: int) -> SlopeSpread:
    """Return the spread of the slopes and its P-values from `draws` bootstrap draws."""
    found = [weighted_spread(part.slopes, np.square(part.errors)) for part in parts]
    q = np.stack([own[2] for own in found])  # [C, D]
    blocks = 1 + max(int(own.max()) for part in parts for own in part.blocks)
    random, step = np.random.default_rng(seed), max(1, _CHUNK // blocks)
    drawn = []
    for start in range(0, draws, step):
        signs = _draw_signs(min(step, draws - start), blocks, random)
        drawn.append(np.stack([draw_q(part, signs) for part in parts], 1))
    freedom = np.array([len(part.usable) - 1 for part in parts])[:, None]
    size = -chi2.logsf(q, freedom)  # [C, D]
    sizes = -chi2.logsf(np.concatenate(drawn), freedom)  # [draws, C, D]
    p = westfall_young(size.ravel(), sizes.reshape(draws, -1)).reshape(q.shape)
    return SlopeSpread(
        np.stack([own[0] for own in found]), np.stack([own[1] for own in found]), q, p
    )


def draw_q(part: ContrastSlopes, signs: np.ndarray) -> np.ndarray:  # [R, blocks] -> [R, D]
    """Return Q of the wild bootstrap, whose scores have the drawn signs."""
    slopes, variances = np.empty((2, len(signs), *part.slopes.shape))
    for e, (scores, shares, own) in enumerate(
        zip(part.scores, part.shares, part.blocks, strict=True)
    ):
        whole = part.information[e]  # [D]
        loose = 1 / np.maximum(1 - shares / whole, 1e-3)  # [m, D]
        sums = np.concatenate([scores, scores * shares * loose], 1).astype(np.float32)
        neighbours = own[-1] - own[0] == len(own) - 1  # a slice is a view and needs no copy
        coins = signs[:, own[0] : own[-1] + 1] if neighbours else signs[:, own]  # [R, m]
        moved, mixed = np.hsplit(coins @ sums, 2)  # [R, D]
        slopes[:, e] = moved / whole
        squares = (np.square(scores) * loose).sum(0)
        ones = (np.square(shares) * loose).sum(0)
        own_squares = squares - 2 * slopes[:, e] * mixed + slopes[:, e] ** 2 * ones
        floor = 1e-3 * squares + np.finfo(float).tiny
        variances[:, e] = np.maximum(own_squares, floor) / whole**2 + part.rest[e]
    return weighted_spread(slopes, variances)[2]


def _draw_signs(draws: int, blocks: int, random: np.random.Generator) -> np.ndarray:
    """Draw −1 or 1, `[draws, blocks]`, eight per random byte."""
    width = -(-blocks // 8)
    bytes_ = np.frombuffer(random.bytes(draws * width), np.uint8).reshape(draws, width)
    bits = np.unpackbits(bytes_, axis=1, count=blocks).astype(np.float32)
    bits *= 2
    bits -= 1
    return bits


def westfall_young(found: np.ndarray, drawn: np.ndarray) -> np.ndarray:  # [K], [R, K] -> [K]
    """Return step-down P-values: of the largest value, then of the next, and so on."""
    order = np.argsort(-found, kind="stable")
    largest = np.maximum.accumulate(drawn[:, order[::-1]], 1)[:, ::-1]  # of those left
    above = (largest >= found[order] - 1e-9).sum(0)
    p = np.maximum.accumulate((1 + above) / (1 + len(drawn)))
    return np.asarray(p[np.argsort(order, kind="stable")])

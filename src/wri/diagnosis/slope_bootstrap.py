"""Wild bootstrap test of whether slopes differ between environments.

    Q = Σ_e (β_e − β̃)² / v_e,   β̃ the mean with weights 1/v_e          (Cochran's)

Without a change Q is χ² with E − 1 degrees of freedom only if v is known. Here Q is compared with
its values when each cell keeps the size of its score T_b (`environment_slopes`) and gets a random
sign, one sign per block: the wild bootstrap under the null (Liu 1988; Cameron, Gelbach and Miller
2008).

    β*_e = Σ_b ±T_b / G,   v*_e = Σ_b (±T_b − G_b β*_e)² / (1 − G_b/G) / G² + rest,   G = Σ_b G_b

Unequal noise, skewed columns and dependence within blocks are part of T_b and so appear on both
sides. All columns and contrasts use the same signs. Values of Q are brought to one scale by the χ²
with their E − 1 degrees of freedom, and P-values are corrected step by step for the largest of the
remaining ones (Westfall and Young, 1993).
"""

from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from wri.diagnosis.environment_slopes import ContrastSlopes, weighted_spread

_CHUNK = 20_000_000  # signs drawn at once


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
        drawn.append(np.stack([flipped(part, signs) for part in parts], 1))
    freedom = np.array([len(part.heard) - 1 for part in parts])[:, None]
    size = -chi2.logsf(q, freedom)  # [C, D]
    sizes = -chi2.logsf(np.concatenate(drawn), freedom)  # [draws, C, D]
    p = step_down(size.ravel(), sizes.reshape(draws, -1)).reshape(q.shape)
    return SlopeSpread(
        np.stack([own[0] for own in found]), np.stack([own[1] for own in found]), q, p
    )


def flipped(part: ContrastSlopes, signs: np.ndarray) -> np.ndarray:  # [R, blocks] -> [R, D]
    """Return Q with the drawn signs of the scores."""
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


def step_down(found: np.ndarray, drawn: np.ndarray) -> np.ndarray:  # [K], [R, K] -> [K]
    """Return step-down P-values: of the largest value, then of the next, and so on."""
    order = np.argsort(-found, kind="stable")
    largest = np.maximum.accumulate(drawn[:, order[::-1]], 1)[:, ::-1]  # of those left
    above = (largest >= found[order] - 1e-9).sum(0)
    p = np.maximum.accumulate((1 + above) / (1 + len(drawn)))
    return np.asarray(p[np.argsort(order, kind="stable")])

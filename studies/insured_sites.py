"""Simulated sites for `insurance.py`: what changes between them, and how much they overlap.

    cause ~ N(m_e, 1),   marker follows the outcome with strength s_e,   season ~ N(g·k_e, 1)

classification: P(y = 1) = σ(2·cause), marker ~ N(s_e·(2y − 1), 1), as in `wri.datasets.hospitals`;
regression: y = cause + N(0, 1), marker ~ N(s_e·y, 1). Strengths s_e are drawn from U(0, 1.5) in
training. At new sites they are drawn from the same ("unchanged"), are 0 ("unrelated") or are drawn
from U(−1.5, 0) ("reversed"). Other markers: "strong", U(0.6, 1.6), and "fixed", 0.8 everywhere,
where nothing changes. Overlap: "full" has m_e = 0 and no season's shift, "partial" m_e from
U(−1.5, 1.5), "none" the same with seasons g = 6 standard deviations apart; a new site has the
season of one of those seen.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit

KINDS = ("unchanged", "unrelated", "reversed")
NEW = 6  # new sites of each kind
TESTED = 500  # rows of a new site
APART = 6.0
STRENGTHS = {"varying": (0.0, 1.5), "strong": (0.6, 1.6), "fixed": (0.8, 0.8)}


class Design(NamedTuple):
    """A kind of simulated table."""

    task: str  # "classes" or "numbers"
    sites: int
    overlap: str  # "full", "partial" or "none"
    rows: int = 300  # of a training site
    noise: int = 3  # columns that tell nothing
    marker: str = "varying"  # a key of STRENGTHS

    @property
    def name(self) -> str:
        marker = "" if self.marker == "varying" else f", {self.marker} marker"
        return f"{self.task}, {self.sites} sites of {self.rows}, {self.overlap} overlap{marker}"


class Site(NamedTuple):
    """Rows of one site."""

    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]


def sample_site(
    design: Design, strength: float, place: int, n: int, random: np.random.Generator
) -> Site:
    """n rows of a site whose marker has this strength and whose season is that of `place`."""
    mean = 0.0 if design.overlap == "full" else random.uniform(-1.5, 1.5)
    cause = random.normal(mean, 1.0, n)
    if design.task == "classes":
        y = (random.random(n) < expit(2 * cause)).astype(int)
        marker = random.normal(strength * (2 * y - 1), 1.0)
    else:
        y = cause + random.normal(size=n)
        marker = random.normal(strength * y, 1.0)
    season = random.normal(APART * place if design.overlap == "none" else 0.0, 1.0, n)
    return Site(np.column_stack([cause, marker, season, random.normal(size=(n, design.noise))]), y)


def sample_table(design: Design, seed: int) -> tuple[list[Site], dict[str, list[Site]]]:
    """Training sites, and new sites by kind."""
    random = np.random.default_rng([seed, design.sites, len(design.overlap), len(design.task)])
    low, high = STRENGTHS[design.marker]
    training = [
        sample_site(design, random.uniform(low, high), place, design.rows, random)
        for place in range(design.sites)
    ]
    ranges = {"unchanged": (low, high), "unrelated": (0, 0), "reversed": (-high, -low)}
    new = {
        kind: [
            sample_site(
                design,
                random.uniform(*ranges[kind]),
                int(random.integers(design.sites)),
                TESTED,
                random,
            )
            for _ in range(NEW)
        ]
        for kind in KINDS
    }
    return training, new

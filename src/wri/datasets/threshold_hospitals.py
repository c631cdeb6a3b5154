"""Patients whose causes act together and beyond thresholds: no linear model can follow them.

    dose ~ N(m_e, 1),   exposure ~ N(k_e, 1),   pressure ~ N(p_e, 1)
    log-odds of being sick:  h = 2.5·sign(dose · exposure) + 2·[|pressure| > 1] − 1
    marker ~ N(±s_e, 1), sick or well

The first two causes harm where both are high or both are low, the third at both ends; the sign of
one cause alone says nothing. As in `wri.datasets.hospitals` the causes do the same at every
hospital, how they are distributed differs (m_e, k_e, p_e), so some hospitals have harder cases than
others; the marker follows the diagnosis, strongly here and weakly there (s_e), and at the next
hospital perhaps the other way round. Further columns are noise. Given all,

    P_e(sick | causes, marker) = σ(h + 2 s_e · marker).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from wri.datasets.environments import Environment

TOGETHER, BEYOND = 2.5, 1.0  # log-odds of the two parts
THRESHOLD = 1.0  # of the pressure


def log_odds(causes: np.ndarray) -> np.ndarray:  # [n, 3] -> [n]
    """h, the log-odds of being sick given the causes, the same at every hospital."""
    dose, exposure, pressure = causes.T
    beyond = 2.0 * (np.abs(pressure) > THRESHOLD) - 1.0
    return TOGETHER * np.sign(dose * exposure) + BEYOND * beyond


@dataclass(frozen=True, kw_only=True)
class ThresholdHospital:
    """Whom a hospital sees, and how its marker follows the diagnosis."""

    name: str
    causes: tuple[float, float, float]  # m_e, k_e, p_e
    marker: float  # s_e

    def sample(self, n: int, seed: int, noise_columns: int = 1) -> Environment:
        """n patients: columns dose, exposure, pressure, marker and noise; class 1 is sick.

        Parameters
        ----------
        n
            Patients.
        seed
            Together with the hospital's name it decides all draws.
        noise_columns
            Columns that tell nothing.
        """
        random = np.random.default_rng([seed, *self.name.encode()])
        causes = random.normal(self.causes, 1.0, (n, 3))
        sick = (random.random(n) < expit(log_odds(causes))).astype(int)
        marker = random.normal((2 * sick - 1) * self.marker, 1.0)
        noise = random.normal(size=(n, noise_columns))
        return Environment(self.name, np.column_stack([causes, marker, noise]), sick)


def _hospital(
    name: str, dose: float, exposure: float, pressure: float, marker: float
) -> ThresholdHospital:
    return ThresholdHospital(name=name, causes=(dose, exposure, pressure), marker=marker)


TRAINING = (
    _hospital("north", -0.5, 0.0, 0.0, 1.5),
    _hospital("east", 0.0, 0.5, 0.5, 0.7),
    _hospital("south", 0.5, 0.0, 0.0, 1.2),
    _hospital("west", 0.0, -0.5, -0.5, 0.3),
)
REVERSED = _hospital("new, marker reversed", 0.0, 0.0, 0.0, -1.0)
UNRELATED = _hospital("new, marker unrelated", 0.0, 0.0, 0.0, 0.0)


class ThresholdDraw(NamedTuple):
    """Hospitals of one draw."""

    training: tuple[ThresholdHospital, ...]
    reversed_marker: ThresholdHospital
    unrelated_marker: ThresholdHospital


def drawn_threshold_hospitals(seed: int) -> ThresholdDraw:
    """Four training hospitals and two new ones with numbers drawn by lot.

    Causes are between −1 and 1 on average; markers are as strong as 0 to 1.5 in training, and point
    the other way, or nowhere, at the new hospitals.
    """
    random = np.random.default_rng([seed, 7])

    def draw(name: str, low: float, high: float) -> ThresholdHospital:
        dose, exposure, pressure = random.uniform(-1, 1, 3).tolist()
        return _hospital(name, dose, exposure, pressure, float(random.uniform(low, high)))

    training = tuple(draw(f"training {k}", 0.0, 1.5) for k in range(len(TRAINING)))
    unrelated, turned = draw("unrelated", 0.0, 0.0), draw("reversed", -1.5, 0.0)
    return ThresholdDraw(training, turned, unrelated)


def threshold_hospitals(
    n: int, seed: int, chosen: Sequence[ThresholdHospital] = TRAINING, noise_columns: int = 1
) -> list[Environment]:
    """n patients of each hospital, the four training ones unless others are given."""
    return [hospital.sample(n, seed, noise_columns) for hospital in chosen]

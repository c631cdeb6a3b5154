"""Simulated patients whose causes act together and beyond thresholds.

    dose ~ N(m_e, 1),   exposure ~ N(k_e, 1),   pressure ~ N(p_e, 1)
    log-odds of being sick:  h = 2.5·sign(dose · exposure) + 2·[|pressure| > 1] − 1
    marker ~ N(±s_e, 1), sick or well

The first two causes harm if both are high or both are low, the third if it is very high or very
low. One cause alone carries no information by its sign, so no linear model can learn the relation.
As in `wri.datasets.hospitals` the causes have the same effect at all hospitals. Their means
(m_e, k_e, p_e) differ, so some hospitals have harder cases. The marker follows the diagnosis with a
strength s_e that differs between hospitals and may be negative at the next one. Other columns are
noise. Given both,

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
    """Return h, the log-odds of being sick given the causes, the same at all hospitals."""
    dose, exposure, pressure = causes.T
    beyond = 2.0 * (np.abs(pressure) > THRESHOLD) - 1.0
    return TOGETHER * np.sign(dose * exposure) + BEYOND * beyond


@dataclass(frozen=True, kw_only=True)
class ThresholdHospital:
    """Simulated hospital: means of its patients' causes, and strength of its marker.

    Parameters
    ----------
    name : str
        Name of the hospital.
    causes : tuple of float
        m_e, k_e and p_e, the means of dose, exposure and pressure.
    marker : float
        s_e, strength of the marker.

    Examples
    --------
    >>> from wri.datasets import ThresholdHospital
    >>> hospital = ThresholdHospital(name="north", causes=(-0.5, 0.0, 0.0), marker=1.5)
    >>> hospital.sample(n=10, seed=0).x.shape
    (10, 5)
    """

    name: str
    causes: tuple[float, float, float]  # m_e, k_e, p_e
    marker: float  # s_e

    def sample(self, n: int, seed: int, noise_columns: int = 1) -> Environment:
        """Draw patients: columns dose, exposure, pressure, marker and noise; class 1 is sick.

        Parameters
        ----------
        n : int
            Number of patients.
        seed : int
            Seed; together with the hospital's name it determines all draws.
        noise_columns : int, default=1
            Number of columns without information.

        Returns
        -------
        environment : Environment
            The patients.
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
    """Hospitals of one random draw."""

    training: tuple[ThresholdHospital, ...]
    reversed_marker: ThresholdHospital
    unrelated_marker: ThresholdHospital


def drawn_threshold_hospitals(seed: int) -> ThresholdDraw:
    """Draw four training hospitals and two new ones.

    Means of causes lie between −1 and 1. Strengths of markers lie between 0 and 1.5 in training,
    and are negative or zero at the new hospitals.
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
    """Draw patients of several hospitals.

    Parameters
    ----------
    n : int
        Number of patients per hospital.
    seed : int
        Seed; together with each hospital's name it determines all draws.
    chosen : sequence of ThresholdHospital, default=TRAINING
        Hospitals; four by default.
    noise_columns : int, default=1
        Number of columns without information.

    Returns
    -------
    environments : list of Environment
        One environment per hospital.

    Examples
    --------
    >>> from wri.datasets import threshold_hospitals
    >>> north = threshold_hospitals(n=100, seed=0)[0]
    >>> north.name, north.x.shape
    ('north', (100, 5))
    """
    return [hospital.sample(n, seed, noise_columns) for hospital in chosen]

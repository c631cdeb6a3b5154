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

import numpy as np

from wri.datasets.environments import Environment
from wri.datasets.hospitals import draw_outcomes

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
        y, marker, noise = draw_outcomes(log_odds(causes), self.marker, noise_columns, random)
        return Environment(self.name, np.column_stack([causes, marker, noise]), y)


TRAINING = (
    ThresholdHospital(name="north", causes=(-0.5, 0.0, 0.0), marker=1.5),
    ThresholdHospital(name="east", causes=(0.0, 0.5, 0.5), marker=0.7),
    ThresholdHospital(name="south", causes=(0.5, 0.0, 0.0), marker=1.2),
    ThresholdHospital(name="west", causes=(0.0, -0.5, -0.5), marker=0.3),
)
REVERSED = ThresholdHospital(name="new, marker reversed", causes=(0.0, 0.0, 0.0), marker=-1.0)
UNRELATED = ThresholdHospital(name="new, marker unrelated", causes=(0.0, 0.0, 0.0), marker=0.0)


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

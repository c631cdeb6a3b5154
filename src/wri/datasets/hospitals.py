"""Simulated patients of several hospitals: the paper's example, with numbers of our choice.

    smoking ~ N(m_e, 1),   P(cancer | smoking) = σ(2·smoking),   marker ~ N(±s_e, 1), sick or well

Smoking, in standard units, is the only cause. Its mean m_e differs between hospitals, its effect
does not: invariant covariate shift. Hospitals with moderate smokers have the harder cases. The
marker is a test that each hospital makes in its own way. It follows the diagnosis with a strength
s_e that differs between hospitals and may be negative at the next one. Other columns are noise.
Given both,

    P_e(cancer | smoking, marker) = σ(2 · smoking + 2 s_e · marker),

so the marker improves predictions at every training hospital and harms them at the next one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from wri.datasets.environments import Environment
from wri.errors import InputError

SLOPE = 2.0  # of smoking, in log-odds


def draw_outcomes(
    log_odds: np.ndarray, strength: float, noise_columns: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # [n], [n], [n, noise_columns]
    """Draw who is sick, a marker that follows it, and columns without information."""
    sick = (random.random(len(log_odds)) < expit(log_odds)).astype(int)
    marker = random.normal((2 * sick - 1) * strength, 1.0)
    return sick, marker, random.normal(size=(len(sick), noise_columns))


@dataclass(frozen=True)
class Hospital:
    """Simulated hospital: mean smoking of its patients, and strength of its marker.

    Parameters
    ----------
    name : str
        Name of the hospital.
    smoking : float
        m_e, mean smoking of its patients.
    marker : float
        s_e, strength of the marker.

    Examples
    --------
    >>> from wri.datasets import Hospital
    >>> hospital = Hospital("north", smoking=-1.0, marker=1.5)
    >>> hospital.sample(n=10, seed=0).x.shape
    (10, 3)
    """

    name: str
    smoking: float  # m_e, mean of its patients
    marker: float  # s_e

    def sample(
        self, n: int, seed: int, noise_columns: int = 1, smoking: np.ndarray | None = None
    ) -> Environment:
        """Draw patients: columns smoking, marker and noise; class 1 has cancer.

        Parameters
        ----------
        n : int
            Number of patients.
        seed : int
            Seed; together with the hospital's name it determines all draws.
        noise_columns : int, default=1
            Number of columns without information.
        smoking : ndarray of shape (n,) or None, default=None
            Smoking of the patients. None: drawn.

        Returns
        -------
        environment : Environment
            The patients.

        Raises
        ------
        InputError
            If `smoking` has another length.
        """
        random = np.random.default_rng([seed, *self.name.encode()])
        drawn = random.normal(self.smoking, 1.0, n)
        smoking = drawn if smoking is None else np.asarray(smoking, float)
        if smoking.shape != (n,):
            raise InputError(f"smoking must be a list of {n}, not of the shape {smoking.shape}")
        y, marker, noise = draw_outcomes(SLOPE * smoking, self.marker, noise_columns, random)
        return Environment(self.name, np.column_stack([smoking, marker, noise]), y)

    @property
    def best_accuracy(self) -> float:
        """Accuracy of the sign of smoking, the best that the cause allows: `E[σ(2·|smoking|)]`."""
        parts = [
            quad(lambda c: norm.pdf(c, self.smoking) * expit(SLOPE * abs(c)), *ends)[0]
            for ends in ((-np.inf, 0), (0, np.inf))
        ]
        return float(sum(parts))


TRAINING = (
    Hospital("north", -1.0, 1.5),
    Hospital("east", 0.0, 0.7),
    Hospital("south", 1.0, 1.2),
    Hospital("west", 0.5, 0.3),
)
REVERSED = Hospital("new, marker reversed", 0.0, -1.0)
UNRELATED = Hospital("new, marker unrelated", 0.0, 0.0)


class HospitalDraw(NamedTuple):
    """Hospitals of one random draw."""

    training: tuple[Hospital, ...]
    reversed_marker: Hospital
    unrelated_marker: Hospital


def drawn_hospitals(seed: int) -> HospitalDraw:
    """Draw four training hospitals and two new ones at random.

    Mean smoking is between −1.5 and 1.5. Markers have a strength of 0 to 1.5 in training, and are
    reversed or unrelated at the new hospitals.
    """
    random = np.random.default_rng([seed, 6])
    training = [
        Hospital(f"training {k}", random.uniform(-1.5, 1.5), random.uniform(0, 1.5))
        for k in range(len(TRAINING))
    ]
    unrelated = Hospital("unrelated", random.uniform(-1.5, 1.5), 0.0)
    turned = Hospital("reversed", random.uniform(-1.5, 1.5), random.uniform(-1.5, 0))
    return HospitalDraw(tuple(training), turned, unrelated)


def hospitals(
    n: int, seed: int, chosen: Sequence[Hospital] = TRAINING, noise_columns: int = 1
) -> list[Environment]:
    """Draw patients of several simulated hospitals.

    Parameters
    ----------
    n : int
        Patients per hospital.
    seed : int
        Seed of all draws.
    chosen : sequence of Hospital, default=TRAINING
        Hospitals; by default the four training hospitals north, east, south and west.
    noise_columns : int, default=1
        Number of columns without information.

    Returns
    -------
    environments : list of Environment
        One environment per hospital; columns smoking, marker and noise; class 1 has cancer.

    Examples
    --------
    >>> from wri.datasets import hospitals
    >>> [(each.name, len(each.y)) for each in hospitals(20, seed=0)]
    [('north', 20), ('east', 20), ('south', 20), ('west', 20)]
    """
    return [hospital.sample(n, seed, noise_columns) for hospital in chosen]

"""Patients of several hospitals: the paper's own example, with every number chosen by us.

    smoking ~ N(m_e, 1),   P(cancer | smoking) = σ(2·smoking),   marker ~ N(±s_e, 1), sick or well

Smoking, in standard units, is the one cause; how much the patients smoke differs from hospital to
hospital (m_e), what it does to them does not: invariant covariate shift. Hospitals with moderate
smokers have the harder cases. The marker, a test that each hospital makes in its own way, follows
the diagnosis, strongly here and weakly there (s_e), and at the next hospital perhaps the other way
round. Further columns are noise. Given both,

    P_e(cancer | smoking, marker) = σ(2 · smoking + 2 s_e · marker),

so a predictor gains by the marker in every training hospital, and loses by it at the next.
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


@dataclass(frozen=True)
class Hospital:
    """Whom a hospital sees, and how its marker follows the diagnosis."""

    name: str
    smoking: float  # m_e, mean of its patients
    marker: float  # s_e

    def sample(
        self, n: int, seed: int, noise_columns: int = 1, smoking: np.ndarray | None = None
    ) -> Environment:
        """n patients: columns smoking, marker and noise; class 1 has cancer.

        Parameters
        ----------
        n
            Patients.
        seed
            Together with the hospital's name it decides all draws.
        noise_columns
            Columns that tell nothing.
        smoking
            What the patients smoke, `[n]`; drawn when not given.
        """
        random = np.random.default_rng([seed, *self.name.encode()])
        drawn = random.normal(self.smoking, 1.0, n)
        smoking = drawn if smoking is None else np.asarray(smoking, float)
        if smoking.shape != (n,):
            raise InputError(f"smoking must be a list of {n}, not of the shape {smoking.shape}")
        sick = (random.random(n) < expit(SLOPE * smoking)).astype(int)
        marker = random.normal((2 * sick - 1) * self.marker, 1.0)
        noise = random.normal(size=(n, noise_columns))
        return Environment(self.name, np.column_stack([smoking, marker, noise]), sick)

    @property
    def best_accuracy(self) -> float:
        """Of the sign of smoking, the best that the cause alone allows: `E[σ(2·|smoking|)]`."""
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
    """Hospitals of one draw."""

    training: tuple[Hospital, ...]
    reversed_marker: Hospital
    unrelated_marker: Hospital


def drawn_hospitals(seed: int) -> HospitalDraw:
    """Four training hospitals and two new ones with numbers drawn by lot.

    Patients smoke between −1.5 and 1.5 on average; markers are as strong as 0 to 1.5 in training,
    and point the other way, or nowhere, at the new hospitals.
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
    """n patients of each hospital, the four training ones unless others are given."""
    return [hospital.sample(n, seed, noise_columns) for hospital in chosen]

"""The simulated hospitals as `fit` takes them: rows, outcomes and where each row comes from."""

import numpy as np

from wri.datasets import hospitals as simulation
from wri.datasets.hospitals import REVERSED, TRAINING, Hospital

STRENGTHS = tuple(hospital.marker for hospital in TRAINING)


def hospitals(n=300, seed=0, strengths=STRENGTHS):
    """X, y and the site of every row, of as many hospitals as markers are given."""
    chosen = [
        Hospital(f"site {e}", hospital.smoking, strength)
        for e, (hospital, strength) in enumerate(zip(TRAINING, strengths, strict=False))
    ]
    sites = simulation(n, seed, chosen)
    X, y = (np.concatenate([site[field] for site in sites]) for field in (1, 2))
    return X, y, np.repeat([site.name for site in sites], n)


def new_hospital(n=4000, seed=1):
    _, X, y = REVERSED.sample(n, seed)
    return X, y

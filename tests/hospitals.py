"""The simulated hospitals as `fit` takes them: rows, outcomes and where each row comes from."""

from wri.datasets import hospitals as simulation
from wri.datasets import joined
from wri.datasets.hospitals import REVERSED, TRAINING, Hospital

STRENGTHS = tuple(hospital.marker for hospital in TRAINING)


def hospitals(n=300, seed=0, strengths=STRENGTHS):
    """X, y and the site of every row, of as many hospitals as markers are given."""
    chosen = [
        Hospital(f"site {e}", hospital.smoking, strength)
        for e, (hospital, strength) in enumerate(zip(TRAINING, strengths, strict=False))
    ]
    return joined(simulation(n, seed, chosen))


def new_hospital(n=4000, seed=1):
    _, X, y = REVERSED.sample(n, seed)
    return X, y

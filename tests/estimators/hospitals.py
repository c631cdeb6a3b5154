"""Hospitals with one cause of the outcome and one marker that follows it differently in each."""

import numpy as np

MEANS = (-1.0, 0.0, 1.0, 0.5)  # of the cause
STRENGTHS = (1.5, 0.7, 1.2, 0.3)  # of the marker; −1 at the new hospital


def hospital(n, mean, strength, random, cause=None):
    """c ~ N(mean, 1), y ~ Bernoulli(σ(2c)), marker (2y − 1)·strength + noise, and pure noise."""
    c = random.normal(mean, 1, n) if cause is None else cause
    y = (random.random(n) < 1 / (1 + np.exp(-2 * c))).astype(int)
    marker = (2 * y - 1) * strength + random.normal(size=n)
    return np.column_stack([c, marker, random.normal(size=n)]), y


def hospitals(n=300, seed=0, means=MEANS, strengths=STRENGTHS):
    """X, y and the hospital of every row."""
    random = np.random.default_rng(seed)
    pairs = zip(means, strengths, strict=True)
    sites = [hospital(n, mean, strength, random) for mean, strength in pairs]
    X, y = (np.concatenate(part) for part in zip(*sites, strict=True))
    return X, y, np.repeat([f"site {e}" for e in range(len(means))], n)


def new_hospital(n=4000, seed=1):
    return hospital(n, 0.0, -1.0, np.random.default_rng(seed))

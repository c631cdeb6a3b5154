"""Small data that many tests share."""

import numpy as np

from wri.stacked import CROSS_ENTROPY, LOGISTIC, SQUARED
from wri.training import Bank


def make_bank(loss=CROSS_ENTROPY, rows=200, width=6, seed=0):
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, width))
    score = features @ random.normal(size=(width, 3)) + random.normal(size=(rows, 3))
    if loss is CROSS_ENTROPY:
        return Bank(features, score.argmax(1))
    if loss is LOGISTIC:
        return Bank(features, (score[:, 0] > 0).astype(int), LOGISTIC)
    return Bank(features, score[:, 0], SQUARED)

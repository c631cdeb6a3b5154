"""Draws follow DomainBed's seeding rule."""

import hashlib

import numpy as np
import pytest

from wri.objectives import OBJECTIVES
from wri.objectives.table_rules import FitSize
from wri.presets import PRESETS
from wri.sweep import draw, seed_hash


def test_seed_hash_is_md5_of_the_printed_tuple():
    expected = int(hashlib.md5(b"(3, 'lr')").hexdigest(), 16) % 2**31
    assert seed_hash(3, "lr") == seed_hash(np.int64(3), "lr") == expected


def test_draw_zero_is_the_default():
    assert draw(OBJECTIVES["wri"], 0)["penalty_weight"] == 1.0
    assert draw(OBJECTIVES["wri"], 0, preset="cmnist")["penalty_weight"] == 500.0
    assert draw(OBJECTIVES["irm"], 0)["anneal_steps"] == 50


def test_two_seeds_and_the_name_decide():
    random = np.random.RandomState(seed_hash(seed_hash(4, 2), "learning_rate"))
    expected = 10 ** random.uniform(np.log10(5e-3), np.log10(1e-1))
    for name in OBJECTIVES:
        assert draw(OBJECTIVES[name], 4, 2)["learning_rate"] == pytest.approx(expected)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.slow
def test_draws_lie_in_their_ranges_and_differ(name, preset):
    size = FitSize(weight=1000.0, largest=300, hidden=(), steps=400)
    draws = [draw(OBJECTIVES[name], seed, preset=preset, size=size) for seed in range(1, 40)]
    for parameter in OBJECTIVES[name].hyperparameters():
        values = [chosen[parameter.name] for chosen in draws]
        assert all(parameter.low <= value <= parameter.high for value in values)
        drawn = parameter.setting(preset).distribution is not None
        assert (len(set(values)) > 1) == drawn

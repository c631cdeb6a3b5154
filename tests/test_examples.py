"""The examples run, at a tiny size and on digits that are made up."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from wri.datasets import Mnist
from wri.densities import LabelAwareClassifier

FOLDER = Path(__file__).parents[1] / "examples"


@pytest.fixture
def own_backbone(monkeypatch, tmp_path):
    monkeypatch.setenv("WRI_CACHE", str(tmp_path))
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("own_backbone")


@pytest.mark.slow
def test_own_backbone(own_backbone):
    """Digits as bright bars in ten places: each predictor has an accuracy in every environment."""
    random = np.random.default_rng(0)
    digits = np.arange(300, dtype=np.uint8) % 10
    images = random.integers(0, 40, (300, 28, 28), dtype=np.uint8)
    for n, digit in enumerate(digits):
        images[n, :, 2 * digit + 4 : 2 * digit + 7] += 180
    few = {"steps": 5, "batch_size": 32, "refit_steps": 5, "refit_batch_size": 32}
    density = LabelAwareClassifier(**few)
    found = own_backbone.compare(Mnist(images, digits), rows=300, steps=6, density=density)
    assert [*found] == [
        f"{name}, {way}" for way in ("end to end", "features") for name in ("ERM", "WRI")
    ]
    for accuracies in found.values():
        assert len(accuracies) == 3
        assert all(0 <= each <= 1 for each in accuracies)


def test_without_penalty_the_loop_is_erm(own_backbone):
    """λ = 0 leaves the densities without influence."""
    torch = own_backbone.torch
    random = torch.Generator().manual_seed(0)
    environments = [
        (torch.rand(20, 2, 28, 28, generator=random), torch.arange(20) % 2) for _ in range(2)
    ]
    some, others = ([torch.randn(2, 20, generator=random) for _ in environments] for _ in range(2))
    one = own_backbone.train(environments, some, 0.0, 3, 0).state_dict()
    two = own_backbone.train(environments, others, 0.0, 3, 0).state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)
    three = own_backbone.train(environments, others, 30.0, 3, 0).state_dict()
    assert not all(torch.equal(one[name], three[name]) for name in one)

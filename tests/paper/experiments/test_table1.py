"""Table 1: what follows from the definitions, by hand, by the objectives and in draws."""

import numpy as np
import pytest
import torch

from wri.datasets import Mnist, where_mnist
from wri.objectives.functional import vrex_penalty, wri_penalty
from wri.paper.experiments import ExperimentTask, run_experiment, table1
from wri.paper.simulations import coloured_mnist, digit_shares
from wri.paper.simulations.coloured_mnist import DIGIT_COUNTS


@pytest.fixture(scope="module")
def digits():
    """MNIST's digits without their pixels."""
    every = np.repeat(np.arange(10, dtype=np.uint8), DIGIT_COUNTS)
    return Mnist(np.empty((len(every), 0, 0), np.uint8), every)


@pytest.fixture
def result(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(table1, "load_mnist", lambda: digits)
    return run_experiment(ExperimentTask(name="table1", full=True, folder=tmp_path))[0]


def derived(penalty, name):
    return table1.cells({name: table1.expectation(name)})[penalty, name]


def test_the_derivation_by_hand():
    squares = sum((count / 70_000) ** 2 for count in DIGIT_COUNTS)
    hard = sum((DIGIT_COUNTS[digit] / 70_000) ** 2 for digit in (2, 3, 4, 7, 8, 9))
    easy = 27_969 / 70_000
    mixed = easy * 0.05 + (1 - easy) * 0.15
    expected = [0, (0.1 * squares / 0.15) ** 2, (0.1 * hard / mixed) ** 2]
    assert np.allclose(derived("WRI", "hcmnist"), 1e3 * np.array(expected))
    expected = [0, 0.1**2 / 2, (0.1 * (1 - easy)) ** 2 / 2]
    assert np.allclose(derived("VREx", "hcmnist"), 1e3 * np.array(expected))

    first, second = 3 * 0.65 * easy, 3 * 0.05 * easy  # easy digits in the two environments
    products = (digit_shares("hcmnist-cs")[0] * digit_shares("hcmnist-cs")[1]).sum()
    expected = [0, (0.1 * products / 0.15) ** 2]
    assert np.allclose(derived("WRI", "hcmnist-cs")[:2], 1e3 * np.array(expected))
    risks = [first * 0.05 + (1 - first) * 0.1, second * 0.05 + (1 - second) * 0.2]
    expected = [(0.2 * (first - second)) ** 2 / 2, 0.1**2 / 2, (risks[0] - risks[1]) ** 2 / 2]
    assert np.allclose(derived("VREx", "hcmnist-cs"), 1e3 * np.array(expected))


def test_the_numbers_that_the_derivation_comes_to():
    assert np.allclose(derived("WRI", "hcmnist"), [0, 4.47, 2.99], atol=0.01)
    assert np.allclose(derived("WRI", "hcmnist-cs"), [0, 0.956, 0.755], atol=0.001)
    assert np.allclose(derived("VREx", "hcmnist"), [0, 5, 1.80], atol=0.01)
    assert np.allclose(derived("VREx", "hcmnist-cs"), [10.35, 5, 8.45], atol=0.01)


@pytest.mark.parametrize("name", table1.DATASETS)
def test_the_objectives_say_the_same_of_the_same_rows(name, digits):
    environments = coloured_mnist(name, 0, digits, 30_000)[:2]
    ideal = table1.measure(environments, table1.trusts_digit(name))
    densities = [[shares[e.digits] for e in environments] for shares in ideal.shares]
    logs = torch.tensor(np.array(densities)).log()
    guesses = {
        "digit": lambda e: e.digits < 5,
        "colour": lambda e: e.colour,
        "mixed": lambda e: np.where(np.isin(e.digits, (0, 1, 5, 6)), e.digits < 5, e.colour),
    }
    for n, predictor in enumerate(table1.PREDICTORS):
        losses = torch.tensor(
            np.array([guesses[predictor](e) != e.y for e in environments])
        ).double()
        expected = wri_penalty(losses, logs, scaling="loss").item()
        assert np.isclose(table1.wri_penalties(ideal)[n], expected)
        expected = 2 * vrex_penalty(losses.mean(-1)).item()
        assert np.isclose(table1.vrex_penalties(ideal)[n], expected)


@pytest.mark.parametrize("name", table1.DATASETS)
def test_the_three_predictors_are_majority_votes_of_what_they_see(name, digits):
    votes = np.zeros((10, 2, 2))  # digit, colour, label
    for environment in coloured_mnist(name, 0, digits)[:2]:
        np.add.at(votes, (environment.digits, environment.colour, environment.y), 1)
    assert np.array_equal(votes.sum(1).argmax(-1), np.arange(10) < 5)
    assert np.array_equal(votes.sum(0).argmax(-1), [0, 1])
    trusts = table1.trusts_digit(name)
    expected = np.where(trusts[:, None], (np.arange(10) < 5)[:, None], [0, 1])
    assert np.array_equal(votes.argmax(-1), expected)


def test_draws_agree_with_the_derivation_and_stand_beside_the_paper(result):
    rows = {(row.algorithm, row.column): row for row in result.rows}
    assert len(rows) == 2 * 2 * 2 * 3
    for (label, predictor), row in rows.items():
        if label.endswith("derived"):
            assert row.spread is None
            assert row.paper is None
        else:
            expected = rows[f"{label}, derived", predictor].ours
            deviation = row.spread * np.sqrt(row.n)
            assert row.n == 20
            assert abs(row.ours - expected) < 2 * deviation
            assert (row.paper is None) == (predictor == "mixed")
    assert "12 of 12 cells lie within 2 standard deviations" in result.notes[1]
    assert rows["VREx, HCMNIST-CS", "digit"].paper == 1.1
    assert rows["VREx, HCMNIST-CS", "digit"].far_from_paper


def test_wri_prefers_the_digit_and_vrex_the_colour_where_digits_shift(result):
    preferred = result.notes[2]
    for expected in (
        "WRI on HCMNIST digit in 20 of 20",
        "WRI on HCMNIST-CS digit in 20 of 20",
        "VREx on HCMNIST digit in 20 of 20",
        "VREx on HCMNIST-CS colour in 20 of 20",
    ):
        assert expected in preferred
    assert "the definitions give 10.3 and 5.0" in result.notes[-1]


def test_a_cell_that_is_far_from_the_derivation_is_named():
    expected = {("WRI", "hcmnist"): np.array([0.0, 4.0, 3.0])}
    ours = {("WRI", "hcmnist"): np.array([[0.0, 4.9, 3.0], [0.1, 5.1, 3.1]])}
    text = table1.agreement(ours, expected)
    assert text.startswith("2 of 3 cells lie within")
    assert text.endswith("the exceptions are WRI of colour on HCMNIST (7.1).")


@pytest.mark.skipif(where_mnist() is None, reason="no MNIST here; `make test` brings it")
@pytest.mark.slow
def test_the_real_digits_give_the_quick_table(tmp_path):
    [result] = run_experiment(ExperimentTask(name="table1", folder=tmp_path))
    assert {row.n for row in result.rows} == {1, 5}
    assert "VREx on HCMNIST-CS colour in 5 of 5 draws" in result.notes[2]

"""Bad input is refused with the row, column or option and the remedy."""

import numpy as np
import pytest

from helpers import make_bank, make_run
from wri.errors import InputError
from wri.objectives import ERM, OBJECTIVES, WRI, VREx
from wri.presets import PRESETS
from wri.stacked import LOGISTIC
from wri.training import Bank

X, Y = np.zeros((6, 2)), np.array([0, 1, 2, 0, 1, 2])
TWO = [np.arange(0, 3), np.arange(3, 6)]


def with_cell(value):
    features = X.copy()
    features[4, 1] = value
    return features


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bank(with_cell(np.nan), Y), "features contains NaN: row 4, column 1"),
        (lambda: Bank(with_cell(np.inf), Y), "features contains infinity: row 4, column 1"),
        (lambda: Bank(X, Y[:5]), "6 rows and targets 5; the numbers must be equal"),
        (lambda: Bank(X[0], Y), "features must be a table"),
        (lambda: Bank(X, np.array([0, 1, np.nan, 0, 1, 2])), "target in row 2 is nan"),
        (lambda: Bank(X, Y - 1), "target in row 0 is -1; cross_entropy needs class numbers"),
        (lambda: Bank(X, Y + 0.5), "target in row 0 is 0.5"),
        (lambda: Bank(X, Y, classes=2), "target in row 2 is 2; .* 0 to 1"),
        (
            lambda: Bank(X, Y, loss=LOGISTIC),
            "target in row 2 is 2; logistic needs class numbers 0 to 1",
        ),
        (
            lambda: make_run(VREx(), Bank(X, Y), TWO[:1]),
            "vrex compares environments and needs at least 2",
        ),
        (lambda: make_run(ERM(), Bank(X, Y), []), "needs at least 1, not 0"),
        (lambda: make_run(ERM(), Bank(X, Y), [TWO[0], [5]]), "environment 1 has 1 training rows"),
        (
            lambda: make_run(ERM(), Bank(X, Y), [[0, 1], [5, 6]]),
            "environment 1: row 6 does not exist",
        ),
        (lambda: make_run(ERM(), Bank(X, Y), [[0.5, 1.0]]), "rows must be a list of row numbers"),
        (
            lambda: make_run(ERM(), Bank(X, Y), TWO, evaluate={"a": [9]}),
            "split 'a': row 9 does not exist; the bank has 6 rows",
        ),
        (
            lambda: make_run(ERM(), Bank(X, Y), TWO, {"penalty_weight": 1.0}),
            "unknown hyper-parameter 'penalty_weight'; this objective has batch_size",
        ),
        (
            lambda: make_run(VREx(), Bank(X, Y), TWO, {"penalty_weight": -1.0}),
            r"penalty_weight = -1 lies outside its range \[0, inf\]",
        ),
        (
            lambda: make_run(ERM(), Bank(X, Y), TWO, {"batch_size": 2.5}),
            "batch_size = 2.5 must be a whole number",
        ),
        (
            lambda: make_run(ERM(), Bank(X, Y), TWO, {"batch_size": "8"}),
            "must be a number, not '8'",
        ),
        (lambda: make_run(ERM(), Bank(X, Y), TWO, {"learning_rate": np.nan}), "must be a number"),
        (
            lambda: make_run(WRI(), Bank(X, Y), TWO, {"min_density": 1.5}),
            "min_density = 1.5 must lie below max_density = 1",
        ),
        (
            lambda: make_run(ERM(), Bank(X, Y), TWO, preset="imagenet"),
            "preset must be one of domainbed, .* not 'imagenet'",
        ),
        (
            lambda: make_run(ERM(), Bank(X, Y), TWO, {"batch_size": np.inf}),
            "batch_size = inf must be a",
        ),
        (
            lambda: make_run(ERM(), Bank(X, Y), TWO, {"learning_rate": np.inf}),
            "rate must be finite",
        ),
        (lambda: make_run(ERM(), Bank(X, Y), TWO, seed=-1), "seed must not be negative"),
        (lambda: make_run(ERM(), Bank(X, Y), TWO, hidden=(4, 0)), "at least one unit each"),
        (lambda: Bank(np.array([["a"], ["b"]]), np.array([0, 1])), "encode texts and categories"),
    ],
)
def test_message_names_the_place_and_the_remedy(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_an_environment_with_a_single_class_is_a_warning():
    with pytest.warns(UserWarning, match="environment 1 holds a single class"):
        make_run(ERM(), Bank(X, np.array([0, 1, 2, 1, 1, 1])), TWO)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_presets_defaults_are_valid(name, preset):
    run = make_run(name, Bank(X, Y), TWO, preset=preset)
    assert set(run.hyper) == {p.name for p in OBJECTIVES[name].hyperparameters()}


def test_the_predictor_is_the_papers_by_default():
    run = make_run(ERM(), make_bank(width=64), [np.arange(5)])
    assert run.network.widths == (64, 32, 16, 3)
    assert make_run(ERM(), make_bank(width=20), [np.arange(5)], hidden=()).network.widths == (20, 3)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_printed_predictor_has_one_hidden_layer_and_the_same_numbers(name):
    bank = make_bank(width=64)
    run, printed = (make_run(name, bank, TWO, preset=p) for p in ("domainbed", "one-layer"))
    assert printed.network.widths == (64, 32, 3)
    assert (printed.hyper, printed.objective) == (run.hyper, run.objective)


def test_a_default_network_never_falls_below_16_and_8_units():
    """Half and a quarter of three columns would be one unit each, and ERM ends constant."""
    assert make_run(ERM(), make_bank(width=3), [np.arange(5)]).network.widths == (3, 16, 8, 3)

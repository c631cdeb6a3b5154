"""The model to use: the best mean over held-out environments and trials, by hand."""

import numpy as np
import pytest

from helpers import make_info
from wri.errors import InputError
from wri.sweep import Outcome, best_model
from wri.training import ModelSpec

DATA = make_info("two sites", ("A", "B"), (0.5, 0.5), (0.2, 0.2))
STEPS = np.array([0, 10, 19])


def run(draw, trial, held_out, validation, measure="accuracy"):
    """`validation` is the curve on the out rows of the training environment."""
    other = 1 - held_out
    splits = {f"env{other}_out": validation, f"env{other}_in": [0.9] * 3}
    splits |= {f"env{held_out}_{rows}": [0.5, 0.5, 0.5] for rows in ("in", "out")}
    hyper = {"learning_rate": 0.01 * (1 + 10 * trial + draw)} if draw else {}
    return Outcome(
        dataset=DATA.name,
        algorithm="erm",
        test_envs=(held_out,),
        hparams_seed=draw,
        trial_seed=trial,
        steps=STEPS,
        measures={measure: {split: np.array(values) for split, values in splits.items()}},
        model=ModelSpec.of("erm", steps=20, hyper=hyper),
    )


# Draw 0 is one model in both trials: means .5 .6 .55. Draw 1 of trial 1: .8 at step 10.
RUNS = [
    run(0, 0, 0, [0.5, 0.9, 0.6]),
    run(0, 0, 1, [0.5, 0.5, 0.6]),
    run(0, 1, 0, [0.5, 0.5, 0.5]),
    run(0, 1, 1, [0.5, 0.5, 0.5]),
    run(1, 0, 0, [0.5, 0.6, 0.75]),
    run(1, 0, 1, [0.5, 0.6, 0.75]),
    run(1, 1, 0, [0.5, 0.9, 0.7]),
    run(1, 1, 1, [0.5, 0.7, 0.7]),
]


def find(runs, **options):
    chosen = {"algorithm": "erm", "selection": "training-domain", "measure": "accuracy"} | options
    return best_model(runs, DATA, **chosen)


def test_the_best_mean_counts_and_the_model_stops_there():
    best = find(RUNS)
    assert (best.draw, best.step, best.value) == (1, 10, pytest.approx(0.8))
    assert best.model.hyper == {"learning_rate": 0.01 * 12}
    assert (best.model.steps, best.model.stop_after) == (20, 11)


def test_the_last_step_needs_no_stop():
    best = find(RUNS[:6])  # without draw 1 of trial 1
    assert (best.step, best.value, best.model.stop_after) == (19, pytest.approx(0.75), None)


def test_the_defaults_are_one_model_in_all_trials():
    best = find(RUNS[:4])
    assert (best.draw, best.step) == (0, 10)
    assert best.value == pytest.approx((0.9 + 0.5 + 0.5 + 0.5) / 4)


def test_a_model_must_have_run_everywhere():
    """Draw 1 of trial 1 was not held out of B: it cannot win."""
    waiting = RUNS[7]
    kept = [run for run in RUNS if run is not waiting]
    assert find(kept).model.hyper == {"learning_rate": 0.01 * 2}


def test_a_loss_is_better_when_it_is_lower():
    runs = [run(0, 0, k, [0.9, 0.2, 0.4], "loss") for k in (0, 1)]
    best = find(runs, measure="loss")
    assert (best.step, best.value) == (10, pytest.approx(0.2))


def test_what_is_missing_is_named():
    with pytest.raises(InputError, match="there is no run of irm on two sites"):
        find(RUNS, algorithm="irm")
    with pytest.raises(InputError, match="A held out, trial 0: leave-one-out needs at least three"):
        find(RUNS, selection="leave-one-out")

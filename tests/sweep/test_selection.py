"""Each way of selecting, on records small enough to select by eye."""

from dataclasses import replace

import numpy as np
import pytest

from helpers import make_data, make_info, make_outcome
from wri.errors import InputError
from wri.sweep.selection import SELECTIONS, choose
from wri.sweep.tables import as_rows, build
from wri.training import ModelSpec

DATA = make_info("three sites", ("site A", "site B", "site C"), (0.5, 0.6, 0.5), (0.0, 0.0, 0.0))
STEPS = np.array([10, 20, 30])

# Site C is held out. Means of A and B, out: .70 .85 .75, .60 .65 .60 and .15 .60 .60.
# In where out belongs would give other winners.
DRAWS = [
    {
        "env0_in": [0.70, 0.80, 0.85],
        "env0_out": [0.70, 0.90, 0.80],
        "env1_in": [0.70, 0.80, 0.85],
        "env1_out": [0.70, 0.80, 0.70],
        "env2_in": [0.95, 0.42, 0.43],
        "env2_out": [0.40, 0.30, 0.20],
        "env0_balanced": [0.50, 0.50, 0.50],
        "env1_balanced": [0.40, 0.40, 0.40],
    },
    {
        "env0_in": [0.55, 0.60, 0.60],
        "env0_out": [0.55, 0.65, 0.60],
        "env1_in": [0.65, 0.70, 0.70],
        "env1_out": [0.65, 0.65, 0.60],
        "env2_in": [0.51, 0.52, 0.53],
        "env2_out": [0.45, 0.50, 0.60],
        "env0_balanced": [0.55, 0.62, 0.60],
        "env1_balanced": [0.60, 0.60, 0.55],
    },
    {  # at first the colour, read the wrong way round
        "env0_in": [0.10, 0.60, 0.60],
        "env0_out": [0.10, 0.60, 0.60],
        "env1_in": [0.20, 0.65, 0.70],
        "env1_out": [0.20, 0.60, 0.60],
        "env2_in": [0.91, 0.62, 0.63],
        "env2_out": [0.90, 0.70, 0.50],
        "env0_balanced": [0.50, 0.58, 0.55],
        "env1_balanced": [0.90, 0.59, 0.55],
    },
]
# In accuracy of A with A and C held out, of B with B and C: means .50 .55 .55, .80 .55 .55
# and .60 .70 .70.
LEFT_OUT = [
    ([0.50, 0.50, 0.60], [0.50, 0.60, 0.50]),
    ([0.90, 0.50, 0.50], [0.70, 0.60, 0.60]),
    ([0.60, 0.70, 0.70], [0.60, 0.70, 0.70]),
]
EXPECTED = {  # draw, step, score
    "training-domain": (0, 20, 0.42),
    "leave-one-out": (1, 10, 0.51),
    "invariance": (1, 20, 0.52),
    "oracle": (1, 30, 0.53),
    "oracle-early": (2, 10, 0.91),
    "guarded-oracle": (2, 20, 0.62),
}


def outcome(draw, accuracy, test_envs=(2,), trial=0, steps=STEPS):
    columns = {name: np.array(values) for name, values in accuracy.items()}
    return make_outcome(DATA.name, "wri", test_envs, draw, trial, steps, columns)


def example(trial=0, shift=0.0):
    """The runs above; `shift` is added to what is shown, not to what selects."""
    runs = []
    for draw, (accuracy, (a, b)) in enumerate(zip(DRAWS, LEFT_OUT, strict=True)):
        shown = {**accuracy, "env2_in": np.add(accuracy["env2_in"], shift)}
        decoy = {key: [0.01, 0.01, 0.99] for key in accuracy}
        runs += [
            outcome(draw, shown, trial=trial),
            outcome(draw, {**decoy, "env0_in": a}, (0, 2), trial),
            outcome(draw, {**decoy, "env1_in": b}, (1, 2), trial),
        ]
    return runs


def select(selection, runs, held_out=2, trial=0):
    return choose(selection, runs, DATA, algorithm="wri", held_out=held_out, trial_seed=trial)


def diverged(run, at):
    """The run with NaN from checkpoint `at` on."""
    columns = {
        name: np.where(np.arange(3) < at, column, np.nan)
        for name, column in run.measures["accuracy"].items()
    }
    return replace(run, measures={"accuracy": columns}, diverged_at=int(run.steps[at]))


def test_there_is_an_answer_for_every_selection():
    assert set(EXPECTED) == set(SELECTIONS)
    assert len(set(EXPECTED.values())) == len(SELECTIONS)


@pytest.mark.parametrize("selection", EXPECTED)
def test_by_hand(selection):
    choice = select(selection, example())
    assert (choice.hparams_seed, choice.step, choice.score) == EXPECTED[selection]
    at = STEPS.tolist().index(choice.step)
    assert choice.splits == {k: v[at] for k, v in DRAWS[choice.hparams_seed].items()}


@pytest.mark.parametrize("selection", EXPECTED)
def test_the_order_of_the_records_is_nothing(selection):
    assert select(selection, example()[::-1]) == select(selection, example())


@pytest.mark.parametrize("selection", EXPECTED)
def test_by_hand_as_a_table(selection):
    row = as_rows(build(example() + example(trial=1, shift=0.02), [DATA], [selection]))[0]
    place = [row[key] for key in ("selection", "dataset", "environment", "algorithm", "n")]
    assert place == [selection, "three sites", "site C", "wri", 2]
    assert row["mean"] == pytest.approx(100 * EXPECTED[selection][2] + 1)
    assert row["standard_error"] == pytest.approx(1)  # of x and x + 2


@pytest.mark.parametrize("selection", EXPECTED)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_diverged_run_never_wins(selection, at):
    winner = EXPECTED[selection][0]
    runs = [diverged(run, at) if run.hparams_seed == winner else run for run in example()]
    assert select(selection, runs).hparams_seed != winner


@pytest.mark.parametrize("selection", EXPECTED)
def test_nan_never_wins_where_no_divergence_was_noted(selection):
    lost = [replace(diverged(run, 0), hparams_seed=-1, diverged_at=None) for run in example()[:3]]
    assert select(selection, lost + example()) == select(selection, example())


def test_a_draw_that_is_not_finished_is_a_reason():
    first, *others = example()
    waiting = replace(first, steps=np.array([], int), measures={})
    assert select("oracle", [waiting, *others]) == "1 of 3 draws are not finished"


def test_the_constant_predictor_never_passes_the_guard():
    data = make_data(environments=3, rows=100)
    info = data.info
    for trial in range(20):
        accuracy = {}
        for e in range(3):
            targets = data.bank.targets
            most = np.bincount(targets[data.rows[e]]).argmax()
            for part in ("in", "out"):
                rows = data.splits(trial)[f"env{e}_{part}"]
                accuracy[f"env{e}_{part}"] = np.array([np.mean(targets[rows] == most)])
        run = make_outcome("toy", "erm", (2,), 0, trial, np.array([0]), accuracy)
        found = choose("guarded-oracle", [run], info, algorithm="erm", held_out=2, trial_seed=trial)
        assert found == "no checkpoint qualifies for guarded-oracle"


def test_a_nan_at_the_first_step_does_not_hide_the_others():
    accuracy = {name: [np.nan, *values[1:]] for name, values in DRAWS[0].items()}
    choice = select("training-domain", [outcome(0, accuracy)])
    assert (choice.step, choice.score) == (20, 0.42)


def test_what_cannot_be_shown_is_not_chosen():
    accuracy = {**DRAWS[0], "env2_in": [0.41, np.nan, 0.43]}
    assert select("training-domain", [outcome(0, accuracy)]).step == 30


@pytest.mark.parametrize("selection", EXPECTED)
def test_all_diverged(selection):
    assert select(selection, [diverged(run, 0) for run in example()]) == "all runs diverged"


def test_leave_one_out_needs_every_run_of_a_draw():
    runs = [diverged(run, 1) if run.test_envs == (0, 2) else run for run in example()]
    reason = "every draw has a diverged run that leave-one-out needs"
    assert select("leave-one-out", runs) == reason
    assert select("oracle", runs).score == 0.53


@pytest.mark.parametrize(
    ("selection", "step"),
    [
        ("training-domain", 10),
        ("oracle", 30),
        ("oracle-early", 10),
        ("guarded-oracle", 10),
        ("leave-one-out", 10),
    ],
)
def test_among_equals_the_first_wins(selection, step):
    same = {key: [0.7, 0.7, 0.7] for key in DRAWS[0]}
    runs = [outcome(draw, same, envs) for draw in (4, 3) for envs in ((2,), (0, 2), (1, 2))]
    choice = select(selection, runs)
    assert (choice.hparams_seed, choice.step) == (3, step)


def test_the_constant_predictor_does_not_beat_itself():
    accuracy = {**DRAWS[0], "env1_in": np.full(3, np.float32(0.6))}  # a little above 0.6
    reason = "no checkpoint qualifies for guarded-oracle"
    assert select("guarded-oracle", [outcome(0, accuracy)]) == reason


def test_leave_one_out_compares_the_same_steps():
    late = np.array([20, 30, 40])
    runs = [replace(run, steps=late) if len(run.test_envs) == 2 else run for run in example()]
    # At step 20 now .50, .80, .60, which were at 10.
    choice = select("leave-one-out", runs)
    assert (choice.hparams_seed, choice.step, choice.score) == (1, 20, 0.52)
    apart = [replace(run, steps=late + 100) if len(run.test_envs) == 2 else run for run in runs]
    reason = "no checkpoint qualifies for leave-one-out"
    assert select("leave-one-out", apart) == reason


def test_reasons_name_what_is_missing():
    assert select("oracle", example(), held_out=1) == "no run of wri with site B held out"
    assert select("oracle", example(), trial=2) == "no run of wri with site C held out"
    single = [run for run in example() if run.test_envs == (2,)]
    reason = "pairs {0, 2}, {1, 2} are missing for leave-one-out"
    assert select("leave-one-out", single) == reason
    reason = "pairs {0, 2} are missing for leave-one-out in 1 of 3 draws"
    some = [run for run in example() if (run.hparams_seed, run.test_envs) != (1, (0, 2))]
    assert select("leave-one-out", some) == reason


def test_invariance_needs_rows_that_the_sweep_was_asked_for():
    plain = [
        replace(
            run,
            measures={
                "accuracy": {
                    k: v for k, v in run.measures["accuracy"].items() if "balanced" not in k
                }
            },
        )
        for run in example()
    ]
    said = "the runs have no balanced rows; name invariance when you sweep"
    assert select("invariance", plain) == said


def test_two_environments_leave_none_to_train_on():
    data = make_info(DATA.name, ("A", "B"), (0.5, 0.5), (0.0, 0.0))
    run = outcome(0, {k: v for k, v in DRAWS[0].items() if "env2" not in k}, (1,))
    reason = "leave-one-out needs at least three environments"
    found = choose("leave-one-out", [run], data, algorithm="wri", held_out=1, trial_seed=0)
    assert found == reason


def test_an_unknown_selection_is_refused():
    with pytest.raises(InputError, match="training-domain, leave-one-out"):
        select("best", example())


def test_a_measure_that_is_better_when_lower_chooses_the_lowest():
    """The same curves as losses: training-domain takes the least mean, .15 of draw 2 at step 10."""
    runs = [
        replace(run, measures={"loss": run.measures["accuracy"]})
        for run in example()
        if run.test_envs == (2,)
    ]
    data = replace(DATA, constant={"loss": (0.65, 0.68, 0.7)})

    def chosen(selection):
        found = choose(
            selection, runs, data, algorithm="wri", held_out=2, trial_seed=0, measure="loss"
        )
        return found.hparams_seed, found.step, found.value, found.score

    assert chosen("training-domain") == (2, 10, pytest.approx(0.15), 0.91)
    assert chosen("oracle") == (0, 30, 0.20, 0.43)
    # of the checkpoints below .65 and .68 in A and B, draw 1 at step 10 has the least in C: .45
    assert chosen("guarded-oracle") == (1, 10, 0.45, 0.51)


def test_tables_wait_for_the_penalty():
    """WRI of 40 steps has its full penalty from step 20 on; ERM has none to wait for."""
    steps = np.array([10, 20, 30])
    for name, expected in (("wri", 20), ("erm", 10)):
        early = {key: [0.9, 0.8, 0.7] for key in DRAWS[0]}
        runs = [replace(outcome(0, early, steps=steps), algorithm=name)]
        for preset, step in (("table", expected), ("coloured", 10)):
            model = ModelSpec.of(name, preset=preset, steps=40)
            run = replace(runs[0], model=model)
            found = choose("training-domain", [run], DATA, algorithm=name, held_out=2, trial_seed=0)
            assert found.step == step

"""The loop: checkpoints, divergence, determinism, stacks."""

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from torch import nn

from helpers import as_module, make_bank, train_steps, with_spec
from helpers import make_run as make_any_run
from wri.errors import InputError
from wri.objectives import ERM, IRM, MLDG, WRI, GroupDRO, VREx
from wri.stacked import CROSS_ENTROPY, LOGISTIC, SQUARED
from wri.training import Bank, choose_device, plan_stacks, train, train_stack
from wri.training.scheduling import OVERHEAD, SHARES, cheapest_cuts, stack_cost

SPLITS = {"in": np.arange(0, 90), "out": np.arange(90, 200)}


def make_run(bank, environments, seed=0, objective=None, **hyper):
    hyper = {"batch_size": 16} | hyper
    return make_any_run(objective or ERM(), bank, environments, hyper, seed, SPLITS, (3, 1))


def test_checkpoints_come_after_steps_0_n_2n_and_the_last(bank, environments):
    (record,) = train_steps([make_run(bank, environments)], 24, checkpoint_every=10)
    assert record.steps.tolist() == [0, 10, 20, 23]
    assert record.measures["accuracy"]["out"].shape == (4,)


def test_the_step_size_falls_along_half_a_cosine(bank, environments):
    """Of two steps the second has the share f + (1 − f)/2 of the step size."""

    def trained(steps, final_rate):
        run = make_run(bank, environments, final_rate=final_rate)
        return train_steps([run], steps, dtype=torch.float64)[0].parameters

    first = trained(1, 1.0)
    whole = trained(2, 1.0) - first
    for final_rate in (0.0, 0.3):
        np.testing.assert_array_equal(trained(1, final_rate), first)
        share = final_rate + (1 - final_rate) / 2
        np.testing.assert_allclose(trained(2, final_rate) - first, share * whole, rtol=1e-9)


@pytest.mark.parametrize("objective", [IRM, VREx, WRI])
def test_dividing_the_loss_by_a_constant_is_nothing_to_adam(bank, environments, objective):
    """The square root in Adam takes any common factor out; only a λ that moves is felt."""
    hyper = {"penalty_weight": 50.0, "anneal_steps": 0}
    constant = {"early_weight": 50.0} if objective is not WRI else {"weighting": "uniform"}
    runs = [
        make_run(bank, environments, objective=objective(divided=divided, **constant), **hyper)
        for divided in (False, True)
    ]
    plain, divided = (train_steps([run], 20, dtype=torch.float64)[0] for run in runs)
    np.testing.assert_allclose(divided.parameters, plain.parameters, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("measures", [("accuracy",), ("loss",), ("loss", "accuracy")])
def test_measures_are_those_of_a_plain_module(bank, environments, measures):
    runs = [make_run(bank, environments, seed) for seed in (0, 1)]
    runs.append(make_run(make_bank(seed=1), environments, 2))
    for run, record in zip(
        runs, train_steps(runs, 12, measures=measures, dtype=torch.float64), strict=True
    ):
        module = as_module(record.network, record.parameters)
        for split, rows in SPLITS.items():
            outputs = module(torch.tensor(run.bank.features[rows]))
            targets = torch.tensor(run.bank.targets[rows])
            expected = {
                "accuracy": (outputs.argmax(1) == targets).double().mean().item(),
                "loss": nn.functional.cross_entropy(outputs, targets).item(),
            }
            for measure in measures:
                last = record.measures[measure][split][-1]
                assert last == pytest.approx(expected[measure], abs=1e-9)


def test_evaluation_in_pieces_gives_the_same(bank, environments, monkeypatch):
    run = make_run(bank, environments)
    (whole,) = train_steps([run], 3)
    monkeypatch.setattr("wri.training.evaluation.MOST_ROWS", 7)
    (pieces,) = train_steps([run], 3)
    np.testing.assert_allclose(
        whole.measures["accuracy"]["out"], pieces.measures["accuracy"]["out"]
    )


def test_a_diverging_run_is_frozen_and_leaves_the_others_alone(environments):
    bank = make_bank(SQUARED)
    good = [make_run(bank, environments, seed, IRM(), penalty_weight=1.0) for seed in (0, 1)]
    bad = make_run(bank, environments, 7, IRM(), penalty_weight=1e30, learning_rate=1e20)
    first, diverged, second = train_steps([good[0], bad, good[1]], 30, 5, ("loss",))
    assert diverged.diverged_at is not None
    after = diverged.steps >= diverged.diverged_at
    assert after.any()
    assert np.isnan(diverged.measures["loss"]["out"][after]).all()
    for run, record in zip(good, (first, second), strict=True):
        (alone,) = train_steps([run], 30, 5, ("loss",))
        assert record.diverged_at is None
        np.testing.assert_allclose(record.parameters, alone.parameters, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("every", [1, 4, 50])
@pytest.mark.parametrize("measure", ["accuracy", "loss", "auroc"])
def test_nothing_is_measured_from_the_step_at_which_a_run_diverged(environments, every, measure):
    """Loss and gradient of step 0 are finite, the parameters after it are not."""
    bank = make_bank(LOGISTIC)
    good = make_run(bank, environments, 0)
    bad = make_run(bank, environments, 1, learning_rate=1e38, weight_decay=1e38)
    for steps in (1, 8):
        fine, diverged = train_steps([good, bad], steps, every, (measure,))
        assert diverged.diverged_at == 0
        assert np.isnan(diverged.measures[measure]["out"]).all()
        assert fine.diverged_at is None
        assert np.isfinite(fine.measures[measure]["out"]).all()


@pytest.mark.parametrize("loss", [CROSS_ENTROPY, LOGISTIC])
def test_outputs_that_are_not_finite_have_no_accuracy(loss, environments):
    """Finite parameters, outputs beyond all numbers in one of two splits."""
    bank = make_bank(loss)
    bank.features[SPLITS["out"]] *= 1e38
    hyper = {"batch_size": 16, "learning_rate": 100.0}
    run = make_any_run(ERM(), bank, environments[:1], hyper, 0, SPLITS, ())
    (record,) = train_steps([run], 1, measures=("accuracy", "loss"))
    assert np.isfinite(record.parameters).all()
    for measure in ("accuracy", "loss"):
        assert np.isnan(record.measures[measure]["out"]).all()
        assert np.isfinite(record.measures[measure]["in"]).all()


def test_the_same_seed_gives_the_same_run_and_another_does_not(bank, environments):
    first, again, other = (
        train_steps([make_run(bank, environments, seed, WRI())], 15)[0].parameters
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_adam_starts_anew_at_the_annealing_step(bank, environments):
    """With λ equal before and after, only the reset can make a difference, and from there on."""
    still, reset = (
        make_run(bank, environments, 0, VREx(), penalty_weight=1.0, anneal_steps=steps)
        for steps in (100, 10)
    )
    for steps, equal in ((10, True), (12, False)):
        ((a,), (b,)) = (train_steps([r], steps, dtype=torch.float64) for r in (still, reset))
        assert np.allclose(a.parameters, b.parameters, rtol=0, atol=1e-12) == equal


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.slow
def test_runs_of_any_kind_come_back_in_order(bank, environments, threads):
    objectives = [ERM(), WRI(), ERM(), VREx(), WRI(), ERM()]
    runs = [
        make_run(bank, environments[: 2 + k % 2], k, objective)
        for k, objective in enumerate(objectives)
    ]
    calls = []
    torch.set_num_threads(threads)
    runs = [with_spec(run, steps=6, precision="double") for run in runs]
    records = train(runs, progress=lambda done, of: calls.append((done, of)))
    torch.set_num_threads(1)
    for run, record in zip(runs, records, strict=True):
        (alone,) = train_steps([run], 6, dtype=torch.float64)
        np.testing.assert_allclose(record.parameters, alone.parameters, rtol=0, atol=1e-9)
    assert calls[-1][0] == calls[-1][1]
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_an_error_in_one_stack_ends_them_all(bank, environments):
    """Threads are given back, and nobody goes on training for nothing."""
    torch.set_num_threads(2)
    done = []

    def progress(step, of):
        done.append(step)
        if step == 5:
            raise RuntimeError("enough")

    runs = [make_run(bank, environments, 0, objective) for objective in (ERM(), VREx(), WRI())]
    runs = [with_spec(run, steps=2000) for run in runs]
    try:
        with pytest.raises(RuntimeError, match="enough"):
            train(runs, progress=progress)
        assert torch.get_num_threads() == 2
        assert len(done) < 100
    finally:
        torch.set_num_threads(1)


def test_stacks_hold_every_run_once_and_one_bucket_each(bank, environments):
    random = np.random.default_rng(0)
    objectives = [ERM(), WRI(), WRI("overlap"), VREx()]
    runs = [
        make_run(bank, environments, 0, objectives[k % 4], batch_size=int(random.integers(2, 80)))
        for k in range(40)
    ]
    stacks = plan_stacks(runs)
    assert sorted(n for stack in stacks for n in stack) == list(range(40))
    for stack in stacks:
        assert len({runs[n].bucket for n in stack}) == 1
    assert len(stacks) == 4  # so little work that padding is cheaper than another stack


def test_stacks_respect_the_limit_of_rows(bank, environments):
    runs = [make_run(bank, environments, batch_size=40) for _ in range(10)]
    stacks = plan_stacks(runs, most_rows=3 * 40 * 4)
    assert sorted(len(stack) for stack in stacks) == [2, 4, 4]


def test_side_steps_of_different_batches_are_kept_apart_and_no_stack_has_most_work(
    bank, environments
):
    sizes = [32, 64] * 20
    runs = [
        make_run(bank, environments, seed, WRI(), density_batch_size=size, density_steps=32)
        for seed, size in enumerate(sizes)
    ]
    stacks = plan_stacks(runs)
    for stack in stacks:
        assert len({sizes[n] for n in stack}) == 1
    costs = [stack_cost([runs[n] for n in stack]) for stack in stacks]
    assert costs == sorted(costs, reverse=True)
    alone = sum(stack_cost([run]) for run in runs)
    assert sum(costs) < alone / 4


def test_work_is_cut_into_shares(bank, environments):
    runs = [make_run(bank, environments, seed, batch_size=64) for seed in range(300)]
    stacks = plan_stacks(runs, most_rows=10**9)
    assert len(stacks) >= SHARES
    assert max(map(len, stacks)) <= len(runs) / SHARES


def test_cuts_are_the_cheapest_of_all():
    random = np.random.default_rng(1)
    rows = sorted(random.integers(100, 9000, 9).tolist(), reverse=True)

    def cost(cuts):
        edges = [0, *cuts, len(rows)]
        groups = pairwise(edges)
        return sum(OVERHEAD + (stop - start) * rows[start] for start, stop in groups)

    every = [cuts for n in range(9) for cuts in combinations(range(1, 9), n)]
    ours = [start for start, _ in cheapest_cuts(rows, OVERHEAD, 10**9)][1:]
    assert cost(ours) == min(map(cost, every))


def test_runs_of_different_kinds_cannot_share_a_stack(bank, environments):
    mixed = [make_run(bank, environments), make_run(bank, environments, 0, VREx())]
    with pytest.raises(InputError, match="cannot share a stack"):
        train_steps(mixed, 5)


def test_device_auto_and_unknown():
    assert choose_device("auto") in ("cpu", "cuda")
    with pytest.raises(InputError, match="device 'abacus' cannot be used here"):
        choose_device("abacus")


@pytest.mark.parametrize(("steps", "every"), [(0, 1), (5, 0)])
def test_steps_must_be_positive(bank, environments, steps, every):
    with pytest.raises(InputError, match="must be at least 1"):
        train_steps([make_run(bank, environments)], steps, every)


def test_no_runs():
    with pytest.raises(InputError, match="there are no runs to train"):
        train_stack([])


def test_a_number_has_no_accuracy(environments):
    run = make_run(make_bank(SQUARED), environments)
    with pytest.raises(InputError, match="accuracy does not exist for squared targets"):
        train_steps([run], 2, measures=("accuracy",))


def test_unknown_measure(bank, environments):
    with pytest.raises(
        InputError, match=r"measure must be one of accuracy, loss, auroc, .* not 'auc'"
    ):
        train_steps([make_run(bank, environments)], 2, measures=("auc",))


OBJECTIVES = [ERM(), IRM(form="square"), VREx(), GroupDRO(), MLDG(), WRI(weighting="uniform")]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
def test_a_row_of_weight_two_is_a_row_that_comes_twice(objective):
    """In whole environments, for what is minimised and for what is measured."""
    bank, times = make_bank(rows=60), np.random.default_rng(0).integers(1, 4, 60)
    where = np.repeat(np.arange(60), times)
    repeated = Bank(bank.features[where], bank.targets[where], classes=3)
    counted = Bank(bank.features, bank.targets, classes=3, weights=times.astype(float))

    def trained(bank, rows):
        train = [np.flatnonzero(rows // 20 == e) for e in (0, 1)]
        hyper = {"batch_size": 500, "learning_rate": 1e-2}
        run = make_any_run(objective, bank, train, hyper, 1, {"out": np.flatnonzero(rows >= 40)})
        return train_steps([run], 10, 9, ("accuracy", "loss"), dtype=torch.float64)[0]

    first, second = trained(repeated, where), trained(counted, np.arange(60))
    np.testing.assert_allclose(first.parameters, second.parameters, atol=1e-9)
    for measure in ("accuracy", "loss"):
        expected = first.measures[measure]["out"]
        np.testing.assert_allclose(second.measures[measure]["out"], expected, atol=1e-9)


def test_bad_weights_are_named():
    with pytest.raises(InputError, match="weight of row 2 is 0"):
        Bank(np.ones((3, 1)), np.zeros(3), weights=np.array([1.0, 2.0, 0.0]))
    with pytest.raises(InputError, match="list of 3"):
        Bank(np.ones((3, 1)), np.zeros(3), weights=np.ones(2))

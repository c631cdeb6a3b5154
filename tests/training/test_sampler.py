"""Samplers reach every row of their own split, and no other."""

import numpy as np
import pytest
import torch

from helpers import make_bank, make_run
from wri.objectives import ERM, IRM, WRI
from wri.rows import in_proportion
from wri.stacked import LOSSES
from wri.training import Bank
from wri.training.sampler import Sampler, StackDraws, StackedRows


def make_runs(bank, objective=None):
    objective = objective or ERM()
    rows = np.random.default_rng(0).permutation(200)
    first = make_run(
        objective, bank, [rows[:50], rows[50:110]], {"batch_size": 8}, seed=1, precision="double"
    )
    second = make_run(
        objective,
        make_bank(seed=1),
        [rows[:30], rows[30:35]],
        {"batch_size": 20},
        seed=2,
        precision="double",
    )
    return [first, second]


def make_sampler(runs):
    features = StackedRows(runs, "cpu")
    sizes = [int(run.hyper["batch_size"]) for run in runs]
    return Sampler(runs, features, sizes, "batches", torch.float64), features


def test_every_row_of_the_own_split_and_no_other(bank):
    runs = make_runs(bank)
    sampler, features = make_sampler(runs)
    seen = [[set() for _ in range(2)] for _ in runs]
    for rows, *_ in sampler.stream(200):  # [R, E, B]
        for r in range(2):
            for e in range(2):
                seen[r][e] |= set((rows[r, e] - features.starts[r]).tolist())
    for r, run in enumerate(runs):
        for e in range(2):
            assert seen[r][e] == set(run.train[e].tolist())


def test_rows_are_drawn_evenly(bank):
    runs = make_runs(bank)[:1]
    sampler, _ = make_sampler(runs)
    counts = np.zeros(200)
    for rows, *_ in sampler.stream(4000):
        np.add.at(counts, rows[0, 0].numpy(), 1)
    drawn = counts[runs[0].train[0]]
    expected = 4000 * 8 / 50
    chi_squared = ((drawn - expected) ** 2 / expected).sum()
    assert chi_squared < 95  # 49 degrees of freedom: beyond 1e-4


def test_features_and_targets_belong_to_the_rows(bank):
    runs = make_runs(bank)
    sampler, features = make_sampler(runs)
    rows = next(iter(sampler.stream(1))).rows
    batch = features.batch(rows)
    for r, run in enumerate(runs):
        own = rows[r] - features.starts[r]
        np.testing.assert_array_equal(batch.x[r], run.bank.features[own])
        np.testing.assert_array_equal(batch.y[r], run.bank.targets[own])


def test_padding_is_a_row_of_the_batch(bank):
    """What a batch holds besides its own rows could overflow where they do not."""
    for objective in (ERM(), IRM(), WRI(form="halves")):  # whole, shuffled, resampled
        sampler, _ = make_sampler(make_runs(bank, objective))
        for rows, *_ in sampler.stream(20):
            for batch, weight in zip(rows.flatten(0, 1), sampler.weight.flatten(0, 1), strict=True):
                assert set(batch[weight == 0].tolist()) <= set(batch[weight > 0].tolist())


def test_shorter_batches_are_padded_with_weight_zero(bank):
    """Batch 8 beside 20; an environment of 5 rows is used whole, each row once."""
    runs = make_runs(bank)
    sampler, features = make_sampler(runs)
    assert sampler.size == 20
    torch.testing.assert_close(sampler.weight.sum(-1), torch.ones(2, 2).double())
    assert (sampler.weight > 0).sum(-1).tolist() == [[8, 8], [20, 5]]
    for rows, *_ in sampler.stream(3):
        small = (rows[1, 1, :5] - features.starts[1]).tolist()
        assert small == runs[1].train[1].tolist()


def test_a_whole_environment_is_shuffled_where_neighbours_matter(bank):
    """IRM's half-batches and Mixup's partners must not be the same at every step."""
    runs = [
        make_run(
            IRM(),
            bank,
            [np.arange(30), np.arange(30, 60)],
            {"batch_size": 64},
            seed=1,
            precision="double",
        )
    ]
    sampler, _ = make_sampler(runs)
    first, second = (rows.clone() for rows, *_ in sampler.stream(2))
    assert sorted(first[0, 0].tolist()) == sorted(second[0, 0].tolist()) == list(range(30))
    assert first[0, 0].tolist() != second[0, 0].tolist()


def test_a_whole_environment_is_drawn_from_where_halves_must_be_independent(bank):
    """Halves of one finite set always deviate to opposite sides, which WRI's product would like."""
    environments = [np.arange(30), np.arange(30, 60)]
    runs = [
        make_run(
            WRI(form="halves"), bank, environments, {"batch_size": 64}, seed=1, precision="double"
        )
    ]
    sampler, _ = make_sampler(runs)
    deviations = []
    for rows, *_ in sampler.stream(2000):
        assert rows.shape == (1, 2, 30)
        own = rows[0, 0].double() - 14.5
        deviations.append((own[::2].mean() * own[1::2].mean()).item())
    error = np.std(deviations) / 2000**0.5
    assert abs(np.mean(deviations)) < 4 * error < 1  # −5 for a set that is split in two


def test_batches_depend_on_the_runs_seed_alone(bank):
    runs = make_runs(bank)
    (together, _), (alone, _) = make_sampler(runs), make_sampler(runs[:1])
    for both, single in zip(together.stream(5), alone.stream(5), strict=True):
        torch.testing.assert_close(both.rows[0, :, :8], single.rows[0])


def test_density_batches_drop_runs_that_have_no_steps_left(bank):
    runs = make_runs(bank, WRI())
    draws = StackDraws(runs, StackedRows(runs, "cpu"), torch.float64)
    steps = {1: 0, 2: 0}
    for drawn in draws.density_rows([1, 0], [5, 2]):
        steps[len(drawn.rows)] += drawn.rows.shape[1]
    assert steps == {2: 2, 1: 3}  # two steps of both runs, three more of the first


def test_whole_environments_are_the_runs_rows(bank):
    runs = make_runs(bank)
    draws = StackDraws(runs, StackedRows(runs, "cpu"), torch.float64)
    for e, rows in enumerate(draws.training_rows(1).x):
        np.testing.assert_array_equal(rows, runs[1].bank.features[runs[1].train[e]])


@pytest.mark.parametrize("ahead", [1, 7, 10_000])
def test_how_far_ahead_rows_are_drawn_does_not_matter(bank, monkeypatch, ahead):
    reference = [drawn.rows.clone() for drawn in make_sampler(make_runs(bank))[0].stream(9)]
    monkeypatch.setattr("wri.training.sampler.AHEAD", ahead)
    for expected, drawn in zip(reference, make_sampler(make_runs(bank))[0].stream(9), strict=True):
        torch.testing.assert_close(drawn.rows, expected)


def weighted(bank):
    weights = np.random.default_rng(5).gamma(1.0, size=len(bank.features))
    return Bank(bank.features, bank.targets, loss=bank.loss, weights=weights)


@pytest.mark.parametrize("objective", [ERM(), IRM(), WRI(form="halves")])
def test_rows_are_drawn_by_their_weights(bank, objective):
    """From environments that do not fit into the batch, and wherever rows are shuffled or drawn."""
    size = 8 if objective.full_batch == "whole" else 64
    bank = weighted(bank)
    run = make_run(
        objective,
        bank,
        [np.arange(50), np.arange(50, 100)],
        {"batch_size": size},
        seed=1,
        precision="double",
    )
    sampler, _ = make_sampler([run])
    assert (sampler.weight == 1 / min(size, 50)).all()
    counts = np.zeros(200)
    for rows, *_ in sampler.stream(4000):
        np.add.at(counts, rows[0, 0].numpy(), 1)
    share = bank.weights[:50] / bank.weights[:50].sum()
    expected = 4000 * min(size, 50) * share
    chi_squared = ((counts[:50] - expected) ** 2 / expected).sum()
    assert counts[50:].sum() == 0
    assert chi_squared < 95  # 49 degrees of freedom: beyond 1e-4


def test_whole_environments_keep_their_weights(bank):
    bank = weighted(bank)
    plain = make_bank(seed=1)
    environments = [np.arange(30), np.arange(30, 40)]
    runs = [
        make_run(ERM(), each, environments, {"batch_size": 64}, seed=1, precision="double")
        for each in (bank, plain)
    ]
    sampler, _ = make_sampler(runs)
    for e, rows in enumerate(environments):
        expected = bank.weights[rows] / bank.weights[rows].sum()
        np.testing.assert_allclose(sampler.weight[0, e, : len(rows)], expected)
        np.testing.assert_allclose(sampler.weight[1, e, : len(rows)], 1 / len(rows))
    assert sampler.weight[:, 1, 10:].sum() == 0


def test_rows_repeat_in_proportion_to_their_weights():
    assert in_proportion(np.array([1.0, 1.0, 1.0])).tolist() == [0, 1, 2]
    assert in_proportion(np.array([2.0, 0.0, 1.0, 3.0])).tolist() == [0, 0, 2, 3, 3, 3]
    assert in_proportion(np.array([1.0, 0.5, 0.5, 2.0])).tolist() == [0, 1, 3, 3]
    assert in_proportion(np.array([200.0, 100.0, 100.0, 400.0])).tolist() == [0, 1, 3, 3]
    weights = np.random.default_rng(0).gamma(1.0, size=500)
    counts = np.bincount(in_proportion(weights), minlength=500)
    assert counts.sum() == 500
    assert (np.abs(counts - 500 * weights / weights.sum()) < 1).all()


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_whole_environments_have_the_targets_of_their_rows(loss):
    bank = weighted(make_bank(loss))
    run = make_run(ERM(), bank, [np.arange(30), np.arange(30, 40)], {"batch_size": 64})
    draws = StackDraws([run], StackedRows([run], "cpu"), torch.float32)
    target_of = {row.tobytes(): y for row, y in zip(bank.features, bank.targets, strict=True)}
    rows = draws.training_rows(0).repeated()
    for x, y in zip(rows.x, rows.y, strict=True):
        assert y.tolist() == [target_of[row.tobytes()] for row in x]
        assert y.dtype.kind == ("f" if bank.n_classes is None else "i")

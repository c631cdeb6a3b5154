"""Balanced rows: weights by hand, known shifts, and a sweep that selects by them."""

import numpy as np
import pytest

from wri.datasets import Environment
from wri.errors import InputError
from wri.sweep import Store, Sweep, SweepSpec, gather, run_sweep
from wri.sweep.balance import LEAST_SHARE, balanced_splits, balancing_weights, draw_evenly
from wri.sweep.tables import as_rows, build


def test_weights_bring_the_mean_to_zero():
    random = np.random.default_rng(0)
    b = np.where(random.random((4000, 1)) < 0.8, 0.8, -0.8)
    weights = balancing_weights(b)
    assert weights.mean() == pytest.approx(1)
    assert weights @ b[:, 0] / len(b) == pytest.approx(0, abs=0.01)
    assert len(set(weights.round(9))) == 2
    two = random.normal(0.4, 1, (4000, 2))
    assert np.abs(balancing_weights(two) @ two / 4000).max() < 0.01


@pytest.mark.parametrize("b", [np.full((50, 1), 2.0), np.full((50, 1), 0.0)])
def test_weights_are_equal_where_nothing_differs(b):
    assert np.allclose(balancing_weights(b), 1)


def test_few_rows_never_carry_all_the_weight():
    b = np.concatenate([np.full(199, 3.0), [-0.5]])[:, None]
    weights = balancing_weights(b)
    assert weights.sum() ** 2 / (weights @ weights) >= LEAST_SHARE * 200
    assert weights[-1] == weights.max()


def test_rows_are_drawn_in_proportion():
    weights = np.array([1.0, 0.0, 2.5, 0.5])
    assert np.bincount(draw_evenly(weights, 8), minlength=4).tolist() == [2, 0, 5, 1]
    assert set(draw_evenly(np.ones(3), 3)) == {0, 1, 2}


def colours(random, agreement, rows=3000):
    """A cause of the label, and a colour that agrees with the label in some share of the rows."""
    cause = random.normal(size=rows)
    y = (random.random(rows) < 1 / (1 + np.exp(-2 * cause))).astype(int)
    colour = np.where(random.random(rows) < agreement, y, 1 - y)
    return np.stack([cause, 2.0 * colour - 1], axis=1), y


@pytest.fixture(scope="module")
def coloured():
    random = np.random.default_rng(1)
    sites = {"a": 0.9, "b": 0.75, "new": 0.1}
    return gather(
        "coloured",
        [Environment(name, *colours(random, share)) for name, share in sites.items()],
        classes=2,
    )


@pytest.mark.slow
def test_colours_no_longer_tell_the_label(coloured):
    splits = coloured.splits(0)
    found = balanced_splits(coloured, splits, [2])
    assert [len(rows) for rows in found.values()] == [1200, 1200, 0]
    x, y = coloured.bank.features, coloured.bank.targets
    for e in (0, 1):
        rows, before = found[f"env{e}_balanced"], splits[f"env{e}_out"]
        assert set(rows) <= set(before)
        agree = [np.mean((x[some, 1] > 0) == y[some]) for some in (before, rows)]
        assert agree[0] > 0.7
        assert agree[1] == pytest.approx(0.5, abs=0.06)
        cause = [np.mean((x[some, 0] > 0) == y[some]) for some in (before, rows)]
        assert cause[0] == pytest.approx(cause[1], abs=0.06)  # what is invariant stays


@pytest.mark.slow
def test_a_sweep_selects_by_balanced_rows(coloured, tmp_path):
    spec = SweepSpec(
        ("wri",),
        draws=3,
        steps=60,
        selections=("training-domain", "invariance"),
        test_envs=(2,),
        preset="table",
        measures=("accuracy",),
    )
    plain = SweepSpec(("wri",), draws=3, steps=60, test_envs=(2,), preset="table")
    [with_balance, without] = [spec.plan([coloured])[0], plain.plan([coloured])[0]]
    assert with_balance.id != without.id
    assert type(with_balance).from_json(with_balance.as_json()) == with_balance
    with Store(tmp_path / "s.db", write=True) as store:
        assert run_sweep(Sweep(spec, [coloured]), store) == 3
        outcomes = store.outcomes()
    splits = outcomes[0].measures["accuracy"]
    assert {"env0_balanced", "env1_balanced"} <= splits.keys()
    assert np.isnan(splits["env2_balanced"]).all()
    [table] = build(outcomes, [coloured.info], ["invariance"])
    rows = as_rows([table])
    assert next((row["environment"], row["n"]) for row in rows) == ("new", 1)
    again = Sweep(spec, [coloured])
    with Store(tmp_path / "s.db", write=True) as store:
        assert run_sweep(again, store) == 0


@pytest.mark.slow
def test_one_training_environment_cannot_be_balanced(coloured):
    spec = SweepSpec(("erm",), selections=("leave-one-out", "invariance"), test_envs=(2,))
    with pytest.raises(InputError, match="invariance needs 2 for training"):
        spec.plan([coloured])

"""One model specification: a sweep, an estimator and a saved model train the same predictor."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import wri
from wri.datasets import hospitals, joined
from wri.estimators import ESTIMATORS
from wri.objectives import OBJECTIVES
from wri.registry import OBJECTIVES as ENTRIES
from wri.stacked import CROSS_ENTROPY, SQUARED
from wri.sweep import Sweep, SweepSpec
from wri.sweep.data import SweepData, builtin_data
from wri.training import Bank, ModelSpec, Run, train, train_stack

SITES = ("a", "b", "c", "d")


def make_table(numbers):
    """Four sites × 60 rows in odd units; classes, or numbers far from zero."""
    x, y, _ = joined(hospitals(60, seed=5))
    x = x * np.array([30.0, 0.01, 1000.0]) + np.array([-7.0, 0.0, 1e5])
    if numbers:
        y = 400 + 50 * x[:, 0] + 20 * np.random.default_rng(0).normal(size=len(y))
    loss = SQUARED if numbers else CROSS_ENTROPY
    return SweepData(
        name="odd", names=SITES, bank=Bank(x, y, loss=loss), sizes=(60,) * 4, preset="table"
    )


@pytest.mark.parametrize(("hidden", "steps"), [(None, 40), (None, None), ((6, 4), 40)])
@pytest.mark.parametrize("numbers", [False, True], ids=["classification", "regression"])
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.slow
def test_a_sweep_and_an_estimator_train_the_same_predictor(name, numbers, hidden, steps):
    """The same rows, preset `table` and seed: outputs agree to 1e-8."""
    data = make_table(numbers)
    spec = SweepSpec((name,), steps=steps, preset="table", hidden=hidden, test_envs=(3,))
    (planned,) = spec.plan([data])
    if steps is None and not planned.model.is_solved:
        pytest.skip("not smooth: always trained in steps")
    run = planned.run(data, data.splits(0))
    (record,) = train_stack([run])
    kind = "Regressor" if numbers else "Classifier"
    estimator = ESTIMATORS[f"{ENTRIES[name].label}{kind}"](
        hidden=hidden,
        steps=steps,
        penalty_weight=None,
        validation_fraction=0.0,
        site_spread=False,
        random_state=run.seed,
    )
    rows = run.learned
    site = np.repeat(SITES[:3], [len(own) for own in run.train])
    estimator.fit(data.bank.features[rows], data.bank.targets[rows], groups=site)
    assert estimator.spec_ == run.spec
    # a solution is exact to the gradient at which the solver ends
    within = 1e-8 if record.gradient is None else 1e-7
    np.testing.assert_allclose(estimator.parameters_, record.parameters, rtol=0, atol=within)
    seen = estimator._prepared(data.bank.features)
    np.testing.assert_allclose(seen, run.view()[0], rtol=0, atol=1e-8)
    assert estimator.target_scaling_ == run.units.target


@pytest.mark.slow
def test_a_sweep_of_hospitals_has_wri_above_erm_where_the_marker_is_reversed():
    """With the moderate λ of the preset: 15 points or more, under every way of choosing."""
    from wri.sweep.tables import build

    data = builtin_data("hospitals")
    assert data.preset == "table"
    spec = SweepSpec(("erm", "wri"), trials=2, test_envs=(4,), preset=data.preset)
    sweep = Sweep(spec, [data])
    runs = [sweep.run(planned) for planned in sweep.planned]
    outcomes = as_outcomes(sweep, train(runs))
    for selection in ("training-domain", "oracle", "oracle-early", "guarded-oracle"):
        (table,) = build(outcomes, [data.info], [selection])
        assert table.lines["wri"][0].mean > table.lines["erm"][0].mean + 15


def as_outcomes(sweep, records):
    from wri.sweep import Outcome

    return [
        Outcome(
            dataset=planned.dataset,
            algorithm=planned.algorithm,
            test_envs=planned.test_envs,
            hparams_seed=planned.hparams_seed,
            trial_seed=planned.trial_seed,
            steps=record.steps,
            measures=record.measures,
            diverged_at=record.diverged_at,
            model=planned.model,
        )
        for planned, record in zip(sweep.planned, records, strict=True)
    ]


@pytest.fixture
def rows(tmp_path):
    """A CSV of four hospitals with text classes, and its frame."""
    x, y, site = joined(hospitals(60, seed=2))
    frame = pd.DataFrame(x, columns=["smoking", "marker", "noise"])
    frame = frame.assign(sick=np.array(["no", "yes"])[y], age=50 + 9 * x[:, 0] + x[:, 2], site=site)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    return frame


SWEEP = ("sweep", "--data", "rows.csv", "--env", "site", "--store", "s.db", "--steps", "40")


@pytest.mark.slow
def test_the_best_model_of_a_sweep_is_shown_trained_and_saved(command, rows, tmp_path):
    """Its predictions are those of the specification trained by hand."""
    size = ("--target", "sick", "--algorithms", "wri", "erm", "--draws", "2", "--trials", "2")
    done = command(*SWEEP, *size, "--hidden", "8,4")
    assert "240 rows, 4 columns, 4 environments; the target is one of 2 classes" in done.stdout
    shown = json.loads(command("results", "s.db", "--best", "--json").stdout)
    assert [(each["algorithm"], each["selection"]) for each in shown["best"]] == [
        ("wri", "training-domain"),
        ("erm", "training-domain"),
    ]
    cells = [(row["algorithm"], row["environment"]) for row in shown["choices"]]
    assert len(cells) == len(set(cells)) == 2 * 4
    for row in shown["choices"]:
        assert [choice["trial"] for choice in row["choices"]] == [0, 1]
        assert all(choice["model"]["hidden"] == [8, 4] for choice in row["choices"])
    assert "draw" in command("results", "s.db", "--best").stdout

    saved = command("results", "s.db", "--best", "--algorithm", "wri", "--fit", "model", "--json")
    best = json.loads(saved.stdout)["best"][0]
    model = wri.WRIClassifier.load(tmp_path / "model")
    X, y = rows[["smoking", "marker", "noise", "age"]], rows["sick"]
    made = eval(best["python"], vars(wri) | {"WRIClassifier": wri.WRIClassifier})
    assert made.get_params() | {"random_state": 0} == model.get_params()
    by_hand = made.fit(X, y, groups=rows["site"])
    probabilities = model.predict_proba(X), by_hand.predict_proba(X)
    np.testing.assert_allclose(*probabilities, rtol=1e-14)  # columns may lie otherwise

    spec = ModelSpec.from_dict(best["model"])
    run = Run(  # the estimator's own rows, through the training loop alone
        replace(spec, precision="double"),
        Bank(X.to_numpy(), (y == "yes").to_numpy().astype(int)),
        fitted_rows(rows, X, y),
        seed=0,
    )
    (record,) = train_stack([run])
    np.testing.assert_allclose(by_hand.parameters_, record.parameters, rtol=0, atol=1e-8)


def fitted_rows(rows, X, y):
    """Rows that the estimator learns from: those it does not hold out."""
    from wri.estimators.inputs import hold_out
    from wri.rows import number_environments

    environments = number_environments(rows["site"], "site", len(rows)).rows
    target = (y == "yes").to_numpy().astype(int)
    return hold_out(environments, X.to_numpy(), target, None, 0.2, 0).fitted


def test_a_regression_is_swept_shown_and_fitted(command, rows, tmp_path):
    size = ("--target", "age", "--algorithms", "erm", "vrex", "--trials", "2")
    frame = rows.drop(columns="sick")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    done = command(*SWEEP, *size)
    assert "the target is a number; preset table" in done.stdout
    assert "rows, squared error, training-domain" in done.stdout
    table = json.loads(command("results", "s.db", "--measure", "r2", "--json").stdout)["rows"]
    best = {row["mean"] for row in table if row["algorithm"] == "erm" and row["mean"] is not None}
    assert best
    assert min(best) > 0.9
    refused = command("results", "s.db", "--measure", "accuracy")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "accuracy was not recorded; there is squared_error, r2" in refused.stderr
    command("results", "s.db", "--best", "--algorithm", "erm", "--fit", "model")
    model = wri.ERMRegressor.load(tmp_path / "model")
    X = frame[["smoking", "marker", "noise"]]
    assert model.score(X, frame["age"]) > 0.9


def test_what_cannot_be_fitted_says_why(command, rows, tmp_path):
    command(*SWEEP, "--target", "sick", "--algorithms", "erm", "irm", "--trials", "1")
    both = command("results", "s.db", "--best", "--fit", "model")
    assert both.returncode == 2
    assert "--fit saves one model; name --algorithm" in both.stderr
    other = command("results", "s.db", "--best", "--algorithm", "wri")
    assert "--algorithm must be one of erm, irm, not 'wri'" in " ".join(other.stderr.split())
    frame = rows.assign(noise=rows["noise"] + 1)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    changed = command("results", "s.db", "--best", "--algorithm", "erm", "--fit", "model")
    assert changed.returncode == 2
    assert "the rows of 'rows' differ from those of the sweep" in changed.stderr
    assert not (tmp_path / "model").exists()
    rows.to_csv(tmp_path / "moved.csv", index=False)
    again = ("results", "s.db", "--best", "--algorithm", "erm", "--fit", "model")
    assert command(*again, "--data", "moved.csv").returncode == 0
    assert wri.ERMClassifier.load(tmp_path / "model").classes_.tolist() == ["no", "yes"]


def test_measures_that_are_better_when_lower_are_chosen_so(command, rows):
    command(*SWEEP, "--target", "sick", "--algorithms", "erm", "--trials", "1", "--draws", "2")
    found = json.loads(command("results", "s.db", "--best", "--measure", "loss", "--json").stdout)
    (best,) = found["best"]
    for row in found["choices"]:
        assert row["measure"] == "loss"
        for choice in row["choices"]:
            assert 0 < choice["value"] < 2
    assert best["value"] > 0

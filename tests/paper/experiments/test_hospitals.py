"""Simulated and real hospitals: what the tables say is measured where no model has been."""

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier

from wri.datasets.hospitals import REVERSED
from wri.paper.experiments import ExperimentTask, heart, hospitals, run_experiment
from wri.paper.experiments.heart import CATEGORIES, NUMBERS, measured, split


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    chosen = {name: hospitals.CLASSIFIERS[name] for name in ("erm", "wri")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hospitals, "CLASSIFIERS", chosen)
        patch.setattr(hospitals, "PATIENTS", 500)
        patch.setattr(hospitals, "TESTED", 2000)
        return run_experiment(
            ExperimentTask(name="hospitals", folder=tmp_path_factory.mktemp("hospitals"))
        )[0]


def cells(result, table):
    return {(row.algorithm, row.column): row.ours for row in result.rows if row.table == table}


@pytest.mark.slow
def test_wri_holds_where_the_marker_is_reversed(simulated):
    accuracy = cells(simulated, hospitals.ACCURACY)
    reversed_marker, unrelated = hospitals.NEW
    assert accuracy["WRI", reversed_marker] > accuracy["ERM", reversed_marker] + 10
    assert accuracy["WRI", unrelated] > accuracy["ERM", unrelated] + 2
    assert accuracy["ERM", hospitals.KNOWN] > accuracy["cause alone", hospitals.KNOWN] + 3
    assert accuracy["cause alone", reversed_marker] == pytest.approx(100 * REVERSED.best_accuracy)
    assert all(path.stat().st_size > 5000 for path in simulated.figures)
    assert any(note.startswith("WRI minus ERM: +") for note in simulated.notes)
    drawn = cells(simulated, hospitals.DRAWN)
    assert set(drawn) == {(a, c) for a in ("ERM", "WRI", "cause alone") for _, c in accuracy}


@pytest.mark.slow
def test_a_shifted_marker_makes_no_patient_strange_and_an_unseen_cause_does(simulated):
    flagged = cells(simulated, hospitals.FLAGGED)
    assert flagged["WRI", hospitals.KNOWN] < 8
    assert flagged["WRI", "marker reversed"] < 10
    assert flagged["WRI", "marker shifted by 3 SD"] < 10
    assert flagged["WRI", "smoking 5 to 8"] > 90
    assert flagged["WRI", "smoking −8 to −5"] > 90


def test_strange_rows_are_strange_in_one_column_only():
    rows = hospitals.strange_rows(3)
    usual, shifted = rows[hospitals.KNOWN], rows["marker shifted by 3 SD"]
    assert np.array_equal(usual[:, [0, 2]], shifted[:, [0, 2]])
    assert shifted[:, 1] == pytest.approx(usual[:, 1] + 3)


def patients(n=60, seed=0):
    random = np.random.default_rng(seed)
    names = np.repeat(["A", "B", "C", "D"], n)
    table = pd.DataFrame({column: random.normal(size=4 * n) for column in NUMBERS})
    for column in CATEGORIES:
        table[column] = random.integers(0, 3, 4 * n).astype(float)
    table["disease"] = (table["age"] + random.normal(size=4 * n) > 0).astype(int)
    table.loc[random.random(4 * n) < 0.1, "chol"] = np.nan
    return table.assign(hospital=names, thal=np.nan)


def test_nothing_of_the_new_hospital_reaches_training():
    table = patients()
    known, new = split(table, "B", seed=1)
    assert set(known.site) == {"A", "C", "D"}
    assert set(new.site) == {"B"}
    assert [np.sum(known.site == site) for site in ("A", "C", "D")] == [48] * 3
    changed = table.copy()
    changed.loc[changed["hospital"] == "B", [*NUMBERS, *CATEGORIES]] = 7.0
    again, other = split(changed, "B", seed=1)
    assert np.array_equal(known.x, again.x)
    assert not np.array_equal(new.x, other.x)
    assert not np.array_equal(known.x, split(table, "B", seed=2)[0].x)


def test_every_hospital_is_held_out_and_averaged(monkeypatch, tmp_path):
    monkeypatch.setattr(heart, "load_heart", patients)
    monkeypatch.setattr(heart, "_networks", dict)
    prior = DummyClassifier(strategy="prior")
    monkeypatch.setattr(heart, "_plain", lambda: {"prior": (prior, None)})
    [result] = run_experiment(ExperimentTask(name="heart", folder=tmp_path))
    losses = cells(result, "log-loss")
    assert losses["prior", heart.MEAN] == pytest.approx(
        np.mean([losses["prior", hospital] for hospital in "ABCD"])
    )
    assert losses["prior", "A"] == pytest.approx(losses["always the same", "A"], abs=0.01)
    assert {row.n for row in result.rows} == {2}


def test_measures_by_hand():
    found = measured(np.array([0, 0, 1, 1]), np.array([0.1, 0.6, 0.4, 0.9]))
    assert found["AUROC"] == pytest.approx(0.75)
    assert found["balanced accuracy"] == pytest.approx(0.5)
    expected = -np.log([0.9, 0.4, 0.4, 0.9]).mean()
    assert found["log-loss"] == pytest.approx(expected)


def test_tuned_lines_choose_among_four_settings():
    ways = {**heart._plain(), **heart._networks()}
    for name, (estimator, settings) in ways.items():
        candidates = getattr(estimator, "candidates", None)
        given = next(iter(settings.values())) if settings else candidates
        assert (given is not None) == name.endswith("tuned"), name
        assert given is None or len(given) == 4

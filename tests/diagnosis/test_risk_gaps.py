"""Gaps of risks and weighted risks in worlds whose relations are known."""

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from test_overlap import unreadable

from wri.diagnosis import RiskGaps, risk_gaps
from wri.errors import InputError

SHIFTS = {"Aarhus": 0.0, "Bergen": 0.8, "Chur": 1.6}  # of the cause: nobody at Aarhus is severe
MODULE = sys.modules[RiskGaps.__module__]


def hospitals(n, marker=(1.5, 1.5, 1.5), seed=0):
    """y depends on the cause alike everywhere; the marker on y, by site."""
    random = np.random.default_rng(seed)
    tables = []
    for (site, shift), slope in zip(SHIFTS.items(), marker, strict=True):
        cause = random.normal(shift, 1, n)
        y = random.uniform(size=n) < 1 / (1 + np.exp(-1.5 * (cause - 2)))
        symptom = slope * (y - 0.5) + random.normal(size=n)
        outcome = np.where(y, "ill", "well")
        tables.append(pd.DataFrame({"cause": cause, "marker": symptom, "site": site, "y": outcome}))
    return pd.concat(tables, ignore_index=True)


class TrueModel:
    """p(y | cause), which the environments share."""

    classes_ = np.array(["ill", "well"])

    def predict_proba(self, X):
        ill = 1 / (1 + np.exp(-1.5 * (X["cause"].to_numpy() - 2)))
        return np.stack([ill, 1 - ill], 1)


def true_logs(z, environments, seed=0, block=None):
    """Logs of N(shift, 1) at causes whose log-odds are z."""
    cause = z[:, :1] / 1.5 + 2
    logs = -np.square(cause - list(SHIFTS.values())) / 2  # [n, E]
    return logs - np.logaddexp.reduce(logs, 1, keepdims=True)


def even_logs(z, environments, seed=0, block=None):
    return np.full((len(z), len(environments.labels)), -np.log(len(environments.labels)))


def test_harder_cases_make_risks_differ_and_no_weighted_risks():
    rows = hospitals(1500)
    found = risk_gaps(TrueModel(), rows, rows.y, rows.site)
    assert not found.risk_invariant
    assert found.weighted_risk_invariant
    assert found.unit == "nats"
    assert "harder cases: the risk is higher at Chur than at Aarhus by" in found.meaning
    assert "VREx" in found.meaning


def test_columns_held_for_causes_tell_the_models_apart(monkeypatch):
    monkeypatch.setattr(MODULE, "environment_logs", true_logs)
    rows = hospitals(1500, (1.5, 1.5, -1.5))
    severity = 1.5 * (rows.cause - 2)
    found = risk_gaps(TrueModel(), rows, rows.y, rows.site, on=severity, draws=200)
    assert found.on == "given"
    assert found.weighted_risk_invariant
    columns = ["cause", "marker"]
    leaning = LogisticRegression().fit(rows[columns][:3000], rows.y[:3000])  # Chur is left out
    found = risk_gaps(leaning, rows[columns], rows.y, rows.site, on=severity, draws=200)
    assert list(found.weighted_intervals[:, 1] < 0) == [False, True, True]


def test_a_marker_that_turns_around_is_found():
    train, rows = hospitals(1500, (1.5, 1.5, -1.5), 1), hospitals(1500, (1.5, 1.5, -1.5), 2)
    columns = ["cause", "marker"]
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(train[columns], train.y)
    found = risk_gaps(model, rows[columns], rows.y, rows.site, draws=200)
    assert not found.weighted_risk_invariant
    assert "The same prediction means different things" in found.meaning
    assert "higher at Chur than at " in found.meaning
    assert (found.weighted_intervals[1:, 1] < 0).all()  # Aarhus − Chur, Bergen − Chur
    clear = found.weighted_intervals[0]
    assert clear[0] < found.weighted_gaps[0] < clear[1]


@pytest.mark.slow
def test_intervals_hold_together_as_often_as_they_say(monkeypatch):
    monkeypatch.setattr(MODULE, "environment_logs", true_logs)
    worlds = [hospitals(150, seed=seed) for seed in range(100)]
    found = [
        risk_gaps(TrueModel(), rows, rows.y, rows.site, level=0.8, draws=100, seed=seed)
        for seed, rows in enumerate(worlds)
    ]
    held = np.mean([gaps.weighted_risk_invariant for gaps in found])
    assert 0.7 <= held <= 0.93  # 80 %, Bonferroni's slack and two standard errors
    drawn = np.array([gaps.weighted_gaps for gaps in found])
    errors = np.array([gaps.weighted_errors for gaps in found])
    assert np.allclose(drawn.std(0), np.sqrt((errors**2).mean(0)), rtol=0.25)
    assert np.allclose(drawn.mean(0), 0, atol=3 * errors.mean() / 10)


class Zero:
    """Predicts zero."""

    def predict(self, X):
        return np.zeros(len(X))


@pytest.mark.slow
def test_skewed_losses_at_sites_of_unequal_size_are_no_gap(monkeypatch):
    """Exponential noise, 40 to 400 rows: of 100 tables 5 % have an alarm."""
    monkeypatch.setattr(MODULE, "environment_logs", even_logs)
    site, alarms = np.repeat([0, 1, 2, 3], [40, 80, 160, 400]), np.zeros(2)
    for seed in range(100):
        y = np.random.default_rng(seed).exponential(size=len(site)) - 1
        found = risk_gaps(Zero(), np.zeros((len(y), 1)), y, site, on=y, draws=99)
        alarms += [not found.risk_invariant, not found.weighted_risk_invariant]
    assert (alarms < 13).all()  # by chance in 1 of 1000


@pytest.mark.slow
def test_alarms_for_classes_at_sites_of_unequal_size_are_not_too_few(monkeypatch):
    """Intervals at the level 80 % of a sure and true model: a fifth of 100 tables has an alarm."""
    monkeypatch.setattr(MODULE, "environment_logs", even_logs)
    site, alarms = np.repeat([0, 1, 2, 3], [40, 80, 160, 400]), np.zeros(2)
    for seed in range(100):
        random = np.random.default_rng(seed)
        rows = pd.DataFrame({"cause": 1 + 3 * random.normal(size=len(site))})
        ill = random.random(len(site)) < TrueModel().predict_proba(rows)[:, 0]
        y = np.where(ill, "ill", "well")
        found = risk_gaps(TrueModel(), rows, y, site, level=0.8, draws=99)
        alarms += [not found.risk_invariant, not found.weighted_risk_invariant]
    assert (alarms > 11).all()
    assert (alarms < 30).all()


def test_without_weights_both_gaps_are_differences_of_means(monkeypatch):
    monkeypatch.setattr(MODULE, "environment_logs", even_logs)
    random = np.random.default_rng(3)
    x, site = random.normal(size=(400, 1)), np.repeat(["a", "b"], [300, 100])
    y = 2 * x[:, 0] + random.normal(size=400) * np.where(site == "a", 1, 2)
    model = LinearRegression().fit(x, y)
    losses = np.square(model.predict(x) - y) / y.var()
    found = risk_gaps(model, x, y, site, draws=4000)
    assert np.allclose(found.risks, [losses[:300].mean(), losses[300:].mean()])
    gap = losses[:300].mean() - losses[300:].mean()
    error = np.hypot(losses[:300].std() / 300**0.5, losses[300:].std() / 100**0.5)
    for gaps, errors, intervals in (
        (found.gaps, found.errors, found.intervals),
        (found.weighted_gaps, found.weighted_errors, found.weighted_intervals),
    ):
        assert gaps == pytest.approx(gap)
        assert errors == pytest.approx(error, rel=0.05)
        assert np.allclose(intervals, gaps + 1.96 * errors * [-1, 1], atol=0.2 * errors)
    assert found.effective_rows == pytest.approx(100)
    assert found.overlap == pytest.approx(1)
    assert "higher at b than at a by" in found.meaning
    assert "% of the variance of the target" in found.meaning


def test_draws_in_pieces_are_the_same_draws(monkeypatch):
    monkeypatch.setattr(MODULE, "environment_logs", true_logs)
    rows = hospitals(50)
    whole = risk_gaps(TrueModel(), rows, rows.y, rows.site, draws=30)
    monkeypatch.setattr(MODULE, "_CHUNK", 1000)
    pieces = risk_gaps(TrueModel(), rows, rows.y, rows.site, draws=30)
    assert np.allclose(whole.weighted_errors, pieces.weighted_errors)


def test_failures_not_seen_yet_count_in_errors(monkeypatch):
    monkeypatch.setattr(MODULE, "environment_logs", even_logs)
    ill = np.r_[np.full(99, 0.99), 0.5]
    rows = pd.DataFrame({"cause": np.tile(2 + np.log(ill / (1 - ill)) / 1.5, 2)})
    y = np.tile(["ill"] * 99 + ["well"], 2)
    found = risk_gaps(TrueModel(), rows, y, np.repeat([1, 2], 100), draws=200)
    variance = 2 * 99 * 0.99 * 0.01 * np.log(99) ** 2 / 100**2  # p(1 − p)·(log-odds)²
    assert found.errors == pytest.approx(variance**0.5)
    assert found.weighted_errors == pytest.approx(variance**0.5)


def test_weights_on_all_columns_ask_about_y():
    """Given cause and marker y differs between sites, though the model heeds the cause only."""
    rows = hospitals(1000, (3.0, 3.0, 0.0), 5)
    X = rows[["cause", "marker"]]
    found = risk_gaps(TrueModel(), X, rows.y, rows.site, on=X, draws=200)
    integrals = [0, 0.1510, 0.1129]  # of w·(E_i[l | x] − E_j[l | x])
    assert (np.abs(found.weighted_gaps - integrals) < 3 * found.weighted_errors).all()
    assert np.allclose(found.overlap, [0.861, 0.448, 0.653], atol=0.04)
    assert list(found.weighted_intervals[:, 0] > 0) == [False, True, True]
    assert "Cases alike in `on` mean different things" in found.meaning


def by_hand(gaps, weighted, worth=100.0, on="outputs", labels=("Bonn", "Köln", "Ulm")):
    pairs = np.stack(np.triu_indices(len(labels), 1), 1)
    gaps, weighted = np.resize(gaps, len(pairs)), np.resize(weighted, len(pairs))
    half, sides = np.full(len(pairs), 0.05), 0.1 * np.array([-1, 1])
    return RiskGaps(
        labels=np.array(labels),
        pairs=pairs,
        risks=np.ones(len(labels)),
        gaps=gaps,
        errors=half,
        intervals=gaps[:, None] + sides,
        weighted_gaps=weighted,
        weighted_errors=half,
        weighted_intervals=weighted[:, None] + sides,
        effective_rows=np.resize(worth, len(pairs)),
        overlap=np.full(len(pairs), 0.5),
        level=0.95,
        on=on,
        unit="nats",
    )


def test_meaning_tells_four_cases_apart():
    fine = by_hand(0.0, 0.05).meaning
    assert "no sign of a fault in the model: between sites, risks and weighted risks" in fine
    assert "at 95 % confidence no weighted gap exceeds 0.15 nats" in fine
    harder = by_hand([0.0, -0.3, 0.2], 0.0).meaning
    assert "the risk is higher at Ulm than at Bonn by 0.3 nats (0.2 to 0.4)" in harder
    assert "no sign of a fault in the model: at 95 %" in harder
    changed = by_hand(0.3, [0.2, 0.4, 0.0]).meaning
    assert "weighted risk is higher at Bonn than at Ulm by 0.4 nats (0.3 to 0.5)" in changed
    assert "cancel" not in changed
    assert "cancel" in by_hand(0.0, 0.4).meaning
    assert "Cases alike in `on`" in by_hand(0.3, 0.4, on="given").meaning


def test_pairs_with_little_in_common_are_not_judged():
    some = by_hand(0.0, [0.0, 0.5, 0.0], worth=[100, 20, 100])
    assert some.weighted_risk_invariant
    assert some.meaning.endswith("too little overlap to be judged: (Bonn and Ulm).")
    none = replace(some, overlap=np.full(3, 0.05))
    assert not none.weighted_risk_invariant
    assert "No weighted risks can be compared" in none.meaning


@pytest.mark.parametrize("labels", ["AB", ["Universitätsspital Zürich", *"BCDEF"], range(100)])
def test_forest_plot_shows_the_clearest_pairs(labels):
    found = by_hand([0.1, -0.2], 0.05, worth=[100, 10], labels=list(labels))
    drawn = found.plot()
    (ax,) = drawn.axes
    points = [len(drawn.get_offsets()) for drawn in ax.collections if hasattr(drawn, "get_sizes")]
    assert sum(points) == 2 * min(len(found.pairs), 18)
    assert len(ax.get_yticks()) == min(len(found.pairs), 18)
    assert drawn.get_size_inches()[1] <= 9
    assert not unreadable(drawn)
    assert found.plot(ax=ax) is drawn


def test_the_clearest_weighted_gap_is_on_top():
    found = by_hand(0.0, [0.1, -0.5, 0.2])
    first = found.plot().axes[0].get_yticklabels()[0]
    assert first.get_text() == "Bonn − Ulm"


def test_blocks_widen_intervals_where_losses_come_together(monkeypatch):
    """Weeks of ten equal losses: a tenth of the rows' worth of evidence."""
    monkeypatch.setattr(MODULE, "environment_logs", even_logs)
    random = np.random.default_rng(6)
    week = np.repeat(np.arange(80), 10)
    x, y = np.zeros((800, 1)), random.normal(size=80)[week]
    model = LinearRegression().fit(x, y)
    plain = risk_gaps(model, x, y, week // 40, on=random.normal(size=800))
    blocked = risk_gaps(model, x, y, week // 40, on=random.normal(size=800), blocks=week)
    assert blocked.errors == pytest.approx(10**0.5 * plain.errors, rel=0.05)


def test_another_model_is_advised_only_with_the_losses_at_sites_left_out():
    rows = hospitals(300, (2.5, 2.5, -2.5))
    columns = ["cause", "marker"]
    model = LogisticRegression().fit(rows[columns], rows.y)
    found = risk_gaps(model, rows[columns], rows.y, rows.site, against=DummyClassifier())
    assert "DummyClassifier" in found.meaning
    assert "the loss at sites left out falls from" in found.meaning
    alone = risk_gaps(model, rows[columns], rows.y, rows.site)
    assert "WRI" not in alone.meaning
    assert alone.left_out is None
    assert repr(alone) == alone.meaning


def test_input_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(MODULE, "environment_logs", even_logs)
    rows, model = hospitals(10, seed=4), TrueModel()

    def refused(message, model=model, y=rows.y, groups=rows.site, **options):
        with pytest.raises(InputError, match=message):
            risk_gaps(model, rows, y, groups, **options)

    refused("y holds the class dead \\(1 rows\\)", y=["dead", *rows.y[1:]])
    refused('on must be "outputs" or hold numbers', on="z")
    refused("on must be columns, \\[30, F\\]", on=np.zeros((29, 2)))
    refused("on contains NaN: row 0, column 0 .30 cells", on=np.full(30, np.nan))
    refused('on must be "outputs" or hold numbers', on=rows[["site"]])
    refused("level must lie between 0 and 1, not 95", level=95)
    refused("draws must be at least 2, not 1", draws=1)
    refused("groups name one environment", groups=["a"] * 30)
    refused("groups has 29 labels for 30 rows", groups=rows.site[1:])
    refused("y must hold one value per row", y=rows.y[1:])
    refused("LinearSVC\\) has no predict_proba", model=LinearSVC().fit(rows[["cause"]], rows.y))
    number = LinearRegression().fit(rows[["cause"]], rows.cause)
    with pytest.raises(InputError, match="y must hold numbers for a regressor"):
        risk_gaps(number, rows[["cause"]], rows.y, rows.site)


@pytest.mark.parametrize(("fitted", "asked"), [(int, bool), (bool, int), (float, bool)])
def test_true_is_one(fitted, asked):
    rows = hospitals(40)
    y = rows.y == "ill"
    model = LogisticRegression().fit(rows[["cause"]], y.astype(fitted))
    same = risk_gaps(model, rows[["cause"]], y.astype(fitted), rows.site, draws=20)
    other = risk_gaps(model, rows[["cause"]], y.astype(asked), rows.site, draws=20)
    assert np.array_equal(same.weighted_gaps, other.weighted_gaps)

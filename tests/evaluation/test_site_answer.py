"""The answer of `wri site`, and what outcomes say: each rule decides alone."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from wri.datasets.table_rows import read_rows
from wri.diagnosis.new_site import NewSite, SiteLoss
from wri.errors import InputError
from wri.estimators import load
from wri.evaluation.candidates import FitOptions
from wri.evaluation.fitting import fit_table
from wri.evaluation.outcomes import FEWEST, LEVEL, Outcomes, loss_p, ranking_p
from wri.evaluation.site_answer import answer_site
from wri.evaluation.verdict import FitSummary, attach_summary, read_summary
from wri.ood.held_out import UnseenCells
from wri.report.pages.site_page import build_site_page, loss_table, site_document

GOOD = SiteLoss(training=0.4, new=0.45, low=0.3, high=0.6, level=0.95)
SUMMARY = FitSummary(
    target="sick",
    site="hospital",
    answer="likely",
    kept="wri 2",
    label="WRI, λ = 2",
    constant=(0.4, 0.6),
    futures={"wri 2": {"like": 0.4}, "constant": {"like": 0.69}},
    columns=(),
    reversed_at={},
)


def flagged(unrelated, turned, reversed_at=()):
    """The summary of a fit whose column age is flagged."""
    own = {"like": 0.4, "unrelated": unrelated, "reversed": turned}
    constant = dict.fromkeys(own, 0.69)
    return replace(
        SUMMARY,
        answer="care",
        futures={"wri 2": own, "constant": constant},
        columns=("age",),
        reversed_at={"age": reversed_at},
    )


def new_site(n=100, **changes):
    site = NewSite(
        labels=np.array(["a", "b", "c", "d"]),
        scores=np.zeros((n, 4)),
        typicality=np.full(n, 50.0),
        verdicts=np.full(n, "supported", object),
        reasons=np.full(n, "", object),
        usual=(0.05, 0.001),
        loss=GOOD,
        measure="log-loss",
        predictions=np.array([0.4, 0.6]),
        evidence_on="outputs",
        columns=("age", "dose"),
        beyond=np.zeros(2),
        known=1000,
        beyond_supported=0.0,
    )
    return replace(site, **changes)


def some(value, share, n=100):
    return np.where(np.arange(n) < share * n, value, "supported").astype(object)


def unseen(share, n=100):
    return (UnseenCells("ward", "category", np.arange(n) < share * n, ("new",)),)


RULES = {
    "nothing against it": (new_site(), SUMMARY, (), "yes"),
    "a missing column": (new_site(), SUMMARY, ("dose",), "no"),
    "outside": (new_site(verdicts=some("outside", 0.6)), SUMMARY, (), "no"),
    "often rare": (new_site(verdicts=some("rare", 0.3)), SUMMARY, (), "care"),
    "usually rare": (new_site(verdicts=some("rare", 0.06)), SUMMARY, (), "yes"),
    "beyond a range": (new_site(beyond=np.array([0.2, 0.0])), SUMMARY, (), "care"),
    "far beyond a range": (new_site(beyond=np.array([0.9, 0.0])), SUMMARY, (), "no"),
    "one unseen category": (new_site(unseen=unseen(0.02)), SUMMARY, (), "yes"),
    "unseen categories": (new_site(unseen=unseen(0.2)), SUMMARY, (), "care"),
    "only unseen categories": (new_site(unseen=unseen(1.0)), SUMMARY, (), "no"),
    "worthless at sites held out": (new_site(), replace(SUMMARY, answer="no"), (), "no"),
    "no interval": (new_site(loss=replace(GOOD, low=None, high=None)), SUMMARY, (), "no"),
    "no loss": (new_site(loss=None), SUMMARY, (), "no"),
    "expected loss of guessing": (new_site(loss=replace(GOOD, new=0.7)), SUMMARY, (), "no"),
    "interval with guessing": (new_site(loss=replace(GOOD, high=0.7)), SUMMARY, (), "care"),
    "flagged, affordable": (new_site(), flagged(0.5, 0.9), (), "care"),
    "flagged, not affordable": (new_site(), flagged(0.7, 0.9), (), "no"),
    "flagged, reversed in training": (new_site(), flagged(0.5, 0.9, ("b",)), (), "no"),
    "an old folder": (new_site(), None, (), "care"),
}


@pytest.mark.parametrize(("site", "summary", "missing", "answer"), RULES.values(), ids=RULES)
def test_each_rule_decides_alone(site, summary, missing, answer):
    found = answer_site(site, object(), summary, missing)
    assert found.answer == answer
    assert len(found.reasons) == (answer != "yes")
    lead = {"yes": "Yes", "care": "With care: ", "no": "Not without outcomes: "}[answer]
    assert found.sentence.startswith(lead)
    assert "environment" not in found.sentence
    assert json.loads(json.dumps(site_document(found)))["verdict"]["answer"] == answer
    assert build_site_page(found, "model", "new.csv", "next", "wri site").lead


def test_an_interval_with_the_constant_is_called_what_it_is():
    found = answer_site(new_site(loss=replace(GOOD, high=0.7)), object(), SUMMARY)
    assert (
        "the 95 % interval of the log-loss, 0.3 to 0.7, includes guessing (0.69)" in found.sentence
    )


def test_a_break_costs_what_the_fit_measured():
    found = answer_site(new_site(), object(), flagged(0.5, 0.9))
    assert "If age told nothing, the loss would go from 0.4 to 0.5, still better" in found.sentence
    assert "relation of 'age' to 'sick' differs between hospitals" in found.sentence
    assert ["if age reversed", "0.9", "0.69"] in loss_table(found).rows
    seen = answer_site(new_site(), object(), flagged(0.5, 0.9, ("b",)))
    assert "If age reversed (as at b), the loss would go from 0.4 to 0.9" in seen.sentence


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A fit of four cities whose column size is noise, saved and loaded again."""
    folder, random = tmp_path_factory.mktemp("fit"), np.random.default_rng(3)
    x = random.normal(size=(400, 2))
    frame = pd.DataFrame({"age": x[:, 0], "size": x[:, 1]})
    frame["ill"] = (1.5 * x[:, 0] + random.logistic(size=400) > 0).astype(int)
    frame["city"] = np.repeat(list("abcd"), 100)
    frame.to_csv(folder / "rows.csv", index=False)
    read = read_rows([folder / "rows.csv"], "ill", "city")
    fit = fit_table(read, FitOptions(predictors=("linear",)))
    attach_summary(fit)
    fit.model.save(folder / "model")
    return fit, folder / "model", frame


@pytest.mark.slow
def test_what_a_fit_measured_is_saved_with_its_model(fitted):
    fit, folder, frame = fitted
    model = load(folder)
    summary = read_summary(model)
    held = fit.held_out
    assert summary.kept == fit.kept.name
    for each in held.candidates:
        assert summary.futures[each.name]["like"] == held.losses(each.name).mean()
    assert summary.constant == pytest.approx((1 - frame.ill.mean(), frame.ill.mean()))
    site = model.score_new_site(frame[["age", "size"]])
    assert answer_site(site, model, summary).answer == "yes"
    model.fit(frame[["age", "size"]], frame["ill"], groups=frame["city"])
    assert read_summary(model) is None  # it was of another fit


@pytest.mark.parametrize(
    "change", [{"answer": "maybe"}, {"constant": [0.5]}, {"futures": {"erm": {}}}, {"target": 3}]
)
def test_an_impossible_summary_is_refused(fitted, change):
    model = load(fitted[1])
    last = model.steps[-1][1]
    last.fit_summary_ = {**last.fit_summary_, **change}
    with pytest.raises(InputError, match="fit_summary is damaged"):
        read_summary(model)


def outcomes(fitted, flip=False, n=400):
    _, folder, frame = fitted
    model = load(folder)
    found = Outcomes(model, "ill")
    rows = frame.iloc[:n]
    y = 1 - rows["ill"] if flip else rows["ill"]
    found.add(y.astype(str), model.assess(rows[["age", "size"]]))
    return found, y.to_numpy()


def test_outcomes_are_compared_with_the_constant(fitted):
    found, y = outcomes(fitted)
    shares = np.array(read_summary(load(fitted[1])).constant)
    constant = found.constant
    assert constant["loss"] == pytest.approx(-np.log(shares[y]).mean())
    assert constant["accuracy"] == pytest.approx(np.mean(y == shares.argmax()))
    assert found.verdict().answer == "yes"
    assert not found.verdict().alarms
    table = found.table()
    assert table.columns[1:] == ["model", "guessing"]
    assert [line[0] for line in table.rows] == ["log-loss", "accuracy", "AUROC"]
    assert "The actual loss lies in this interval" in found.describe_expected()


def test_a_reversed_site_raises_both_alarms(fitted):
    found, _ = outcomes(fitted, flip=True)
    verdict = found.verdict()
    assert verdict.answer == "no"
    assert "worse than guessing" in verdict.sentence
    assert "ranks the rows backwards" in verdict.sentence
    few, _ = outcomes(fitted, flip=True, n=FEWEST - 1)
    assert few.verdict().alarms == ()
    assert few.verdict().answer == "unclear"


@pytest.mark.parametrize("n", [30, 100])
@pytest.mark.slow
def test_chance_alone_seldom_raises_an_alarm(n):
    random, tables = np.random.default_rng(0), 600
    losses, ranks = 0, 0
    for _ in range(tables):
        losses += loss_p(random.exponential(size=n) - 1) <= LEVEL
        ranks += ranking_p(np.arange(n) % 2, random.random(n)) <= LEVEL
    most = LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / tables)
    assert losses / tables <= most
    assert ranks / tables <= most
    assert loss_p(random.normal(1, 1, n)) <= LEVEL

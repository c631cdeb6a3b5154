"""Sites held out in turn: nothing of them is seen, and futures move what was flagged without."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler

from wri.datasets.table_rows import TableRows
from wri.estimators import ESTIMATORS
from wri.evaluation.candidates import FitCandidate, FitOptions
from wri.evaluation.changes import comparable_columns
from wri.evaluation.held_out import (
    HeldOutScores,
    HeldOutWork,
    SiteScore,
    hold_out_sites,
)

SITES = ("u", "v", "w")
ERM = FitCandidate(name="erm", label="ERM", algorithm="erm", is_asked=True)


class Watching(StandardScaler):
    """Remembers the rows that it was fitted on."""

    fitted: list

    def fit(self, X, y=None, sample_weight=None):
        Watching.fitted.append(set(X["number"]))
        return super().fit(X, y, sample_weight)


def rows(n=40):
    random = np.random.default_rng(0)
    groups = np.repeat(SITES, n)
    x = np.column_stack([np.arange(3 * n), random.normal(size=3 * n)])
    y = (x[:, 1] + random.normal(size=3 * n) > 0).astype(int)
    return TableRows(X=x, y=y, groups=groups, task="classes")


def hold_out(data, make_model, make_preprocessing=None):
    work = HeldOutWork(
        candidates=(ERM,),
        make_model=make_model,
        make_preprocessing=make_preprocessing,
        judged=frozenset({"erm"}),
        seed=0,
    )
    return hold_out_sites(data, work)


def test_preprocessing_and_models_never_see_the_site_held_out():
    data, Watching.fitted = rows(), []
    seen = []

    class Spy(ESTIMATORS["ERMClassifier"]):
        def _read_problem(self, X, y, groups, sample_weight=None):
            seen.append(set(groups))
            return super()._read_problem(X, y, groups, sample_weight)

    frame = pd.DataFrame(data.X, columns=["number", "value"])
    held = hold_out(replace(data, X=frame), lambda name: Spy(steps=5), Watching)
    for site, fitted, groups in zip(SITES, Watching.fitted, seen, strict=True):
        own = set(np.flatnonzero(data.groups == site).astype(float))
        assert not own & fitted
        assert len(own | fitted) == len(data.y)
        assert groups == {*SITES} - {site}
    assert [(each.environment, each.n) for each in held.scores] == [(site, 40) for site in SITES]
    right = held.rows["erm"].right
    for each in held.scores:
        assert each.score == right[data.groups == each.environment].mean()
        assert each.low < each.score < each.high


def test_a_class_that_one_site_alone_has_is_wrong_there_and_finite():
    data = rows()
    y = data.y.copy()
    y[:5] = 2  # at u only
    held = hold_out(replace(data, y=y), lambda name: ESTIMATORS["ERMClassifier"](steps=5))
    assert held.rows["erm"].right[:5].tolist() == [0] * 5
    assert np.isfinite([each.loss for each in held.scores]).all()


def test_regression_scores_are_r2_of_the_site_itself():
    data = rows()
    y = data.X[:, 1] * 2 + 1
    data = replace(data, X=data.X[:, 1:], y=y, task="numbers")
    held = hold_out(data, lambda name: ESTIMATORS["ERMRegressor"](steps=300))
    assert all(each.score > 0.98 for each in held.scores)
    losses = held.rows["erm"].losses
    own = data.groups == "v"
    expected = 1 - losses[own].sum() / np.square(y[own] - y[own].mean()).sum()
    assert held.of("erm")[1].score == pytest.approx(expected)


def test_blocks_widen_intervals_where_rows_repeat():
    data = rows(100)
    x, y, groups = (np.repeat(part, 10, axis=0) for part in (data.X, data.y, data.groups))
    blocks = np.repeat(np.arange(300), 10)

    def width(blocks):
        data = TableRows(X=x, y=y, groups=groups, blocks=blocks, task="classes")
        held = hold_out(data, lambda name: ESTIMATORS["ERMClassifier"](steps=5))
        return np.mean([each.high - each.low for each in held.scores])

    assert width(blocks) > 2 * width(None)


def test_a_category_has_one_reference_and_constants_are_not_compared():
    x = np.array([[1.0, 0.0, 0.0, 5.0, 2.0], [1.0, 0.0, 0.0, 6.0, 2.0], [0.0, 1.0, 0.0, 7.0, 2.0]])
    x = np.vstack([x, [[0.0, 0.0, 1.0, 8.0, 2.0]]])
    owners = ("ward", "ward", "ward", "age", "always 2")
    assert comparable_columns(x, owners).tolist() == [1, 2, 3]  # the first ward is most common


def made_up(losses):
    """Held-out losses of models at sites."""
    scores = [
        SiteScore(
            environment=str(e),
            model=name,
            n=10,
            score=1 - loss,
            low=0,
            high=1,
            loss=loss,
            unrelated=loss,
            reversed=loss,
            auroc=None,
        )
        for name, row in losses.items()
        for e, loss in enumerate(row)
    ]
    sites = tuple(str(e) for e in range(len(next(iter(losses.values())))))
    return HeldOutScores(
        environments=sites,
        candidates=tuple(FitCandidate(name=name, label=name, is_asked=True) for name in losses),
        classes=True,
        scores=tuple(scores),
        rows={},
        flagged=dict.fromkeys(sites, ()),
    )


def test_intervals_between_sites_are_those_of_student():
    held = made_up({"erm": [0.1, 0.2, 0.3]})
    mean = held.mean("erm", "loss")
    # t with two degrees of freedom 4.3027, standard deviation 0.1
    assert mean.high - mean.value == pytest.approx(4.3027 * 0.1 / np.sqrt(3), rel=1e-4)
    ahead = held.new_site("erm", "loss")
    assert ahead.high - ahead.value == pytest.approx(4.3027 * 0.1 * np.sqrt(4 / 3), rel=1e-4)
    assert ahead.low == 0  # a loss is never below


def test_options_name_what_does_not_exist():
    with pytest.raises(ValueError, match="--algorithms must be one of erm, "):
        FitOptions(algorithms=("boost",)).check()
    with pytest.raises(ValueError, match="must name at least one algorithm, and none twice"):
        FitOptions(algorithms=("erm", "erm")).check()
    with pytest.raises(
        ValueError, match=r"--keep must be one of wri 0\.48, wri 1\.6, wri 4\.8, erm, wit"
    ):
        FitOptions(keep="boost").check()
    with pytest.raises(ValueError, match="λ must be a number above 0"):
        FitOptions(keep="wri 0").check()


def test_another_weight_can_be_kept_and_is_compared_then():
    options = FitOptions(keep="WRI  3")
    assert options.kept_by_name().penalty_weight == 3.0
    assert [each.name for each in options.candidates()][:4] == [
        "wri 0.48",
        "wri 1.6",
        "wri 3",
        "wri 4.8",
    ]
    assert FitOptions(keep="wri").kept_by_name().name == "wri 1.6"  # the preset's
    assert all(each.penalty_weight != 0 for each in FitOptions().candidates())


def test_other_predictors_are_tried_where_they_take_little_time():
    few = {each.name for each in FitOptions().candidates(rows=2_000, sites=4)}
    many = {each.name for each in FitOptions().candidates(rows=1_000_000, sites=40)}
    assert "network" in few
    assert not {"network", "trees"} & many
    asked = FitOptions(predictors=("linear", "network")).candidates(rows=1_000_000, sites=40)
    assert "network" in {each.name for each in asked}

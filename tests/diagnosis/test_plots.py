"""Every plot of the diagnosis fits on a screen and can be drawn into axes, for any sites."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

from wri.diagnosis import (
    changing_features,
    design_position,
    environment_overlap,
    risk_gaps,
    stress_test,
)
from wri.diagnosis.new_site import NewSite

SCREEN = (14, 9)  # inches


def site_table(environments, rows):
    """Names of hospitals as people give them, some long; shift and one changing column."""
    random, number = np.random.default_rng(0), np.repeat(np.arange(environments), rows)
    x = random.normal(size=(len(number), 6))
    x[:, 0] += np.linspace(-1, 1, environments)[number]
    slope = np.linspace(-1, 2, environments)[number]
    y = (x[:, 0] + slope * x[:, 1] + random.logistic(size=len(number)) > 0).astype(int)
    names = np.array([f"hospital of Saint {'Bartholomew ' * (k % 2)}{k}" for k in range(200)])
    return x, y, names[number]


def make_new_site(environments):
    """Rows of a new site that are like the training environments more and more."""
    random = np.random.default_rng(0)
    scores = random.normal(size=(400, environments)) + np.linspace(0, 2, environments)
    return NewSite(
        labels=np.array([f"hospital {k}" for k in range(environments)]),
        scores=scores,
        typicality=100 * random.random(400) ** 2,
        verdicts=np.where(random.random(400) < 0.1, "rare", "supported"),
        reasons=np.full(400, ""),
        usual=(0.045, 0.005),
        loss=None,
        measure="log-loss",
        predictions=np.array([0.4, 0.6]),
        evidence_on="outputs",
        columns=("a",),
        beyond=np.zeros(1),
        known=1000,
        beyond_supported=0.0,
    )


def answers(environments):
    x, y, groups = site_table(environments, 1200 // environments)
    model, other = (LogisticRegression(C=c).fit(x, y) for c in (1.0, 0.01))
    yield changing_features(x, y, groups, draws=19)
    yield risk_gaps(model, x, y, groups, draws=19)
    yield environment_overlap(x, groups, permutations=19)
    yield stress_test({"plain": model, "pulled": other}, x, y, groups, [1], draws=1)
    yield make_new_site(environments)
    if environments < 100:
        yield design_position(x, y, groups, [1], permutations=3)


@pytest.mark.parametrize("environments", [2, 12, 100])
@pytest.mark.slow
def test_plots_fit_on_a_screen_and_heed_given_axes(environments):
    for found in answers(environments):
        drawn = found.plot()
        size = drawn.get_size_inches()
        assert size[0] <= SCREEN[0], type(found)
        assert size[1] <= SCREEN[1], type(found)
        drawn.canvas.draw()
        figure = Figure()
        first, second = figure.subplots(1, 2)
        assert found.plot(ax=second) is figure
        assert second.has_data()
        assert not first.has_data(), type(found)


def test_the_sites_that_rows_are_like_come_first_and_the_rest_is_counted():
    found = make_new_site(100)
    axes = found.plot(most=10).axes[1]
    widths = [bar.get_width() for bar in axes.patches]
    assert len(widths) == 10
    assert widths == sorted(widths, reverse=True)
    assert axes.yaxis_inverted()
    rest = 100 - sum(widths)
    assert axes.get_title(loc="left") == f"most common at\n90 others together {rest:.0f} %"
    assert axes.get_yticklabels()[0].get_text() == str(found.nearest)


def test_results_show_themselves_as_sentences():
    for found in answers(12):
        shown = repr(found)
        assert shown == found.meaning.strip()
        assert shown.endswith(".")
        assert "array(" not in shown

"""The verdict of a fit: what is flagged, what is kept, and what the table says."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from wri.datasets import hospitals
from wri.datasets.table_rows import read_rows
from wri.errors import InputError
from wri.evaluation.candidates import FitOptions
from wri.evaluation.fitting import fit_table
from wri.evaluation.verdict import SiteWord
from wri.futures import FUTURES, future_rows
from wri.report.pages.fit_page import future_table
from wri.rows import hash_rows

LINEAR = {"predictors": ("linear",)}


def hospital_table(n=200):
    frames = [
        pd.DataFrame(each.x, columns=["smoking", "marker", "noise"]).assign(
            sick=each.y, hospital=each.name
        )
        for each in hospitals(n, seed=0)[:4]
    ]
    return pd.concat(frames, ignore_index=True)


def steady_table(signal=1.5, sites=4, n=100):
    random = np.random.default_rng(3)
    x = random.normal(size=(sites * n, 2))
    y = signal * x[:, 0] + random.logistic(size=sites * n) > 0
    sites = np.repeat([f"city {k}" for k in range(sites)], n)
    return pd.DataFrame({"age": x[:, 0], "size": x[:, 1], "ill": y.astype(int), "city": sites})


def fitted(frame, path, target, env, **options):
    frame.to_csv(path / "rows.csv", index=False)
    return fit_table(read_rows([path / "rows.csv"], target, env), FitOptions(**LINEAR | options))


@pytest.fixture(scope="module")
def hospital_fit(tmp_path_factory):
    return fitted(hospital_table(), tmp_path_factory.mktemp("rows"), "sick", "hospital")


def test_the_marker_is_flagged_and_wri_is_kept(hospital_fit):
    verdict = hospital_fit.verdict
    assert verdict.answer == "care"
    assert verdict.question == "Will it hold at a new hospital?"
    (change,) = hospital_fit.changes
    assert change.column == "marker"
    assert verdict.sentence.startswith(
        "Not without care: the relation of 'marker' to 'sick' differs"
    )
    low, high = min(change.slopes.values()), max(change.slopes.values())
    assert f"slope {low:.2g} at west to {high:.2g} at " in verdict.sentence
    assert "the sign is the same everywhere" in verdict.sentence
    assert hospital_fit.kept.algorithm == "wri"
    assert hospital_fit.kept.penalty_weight > 0
    assert hospital_fit.estimator.hyper_["penalty_weight"] == hospital_fit.kept.penalty_weight
    assert "--keep " in verdict.kept
    assert "environment" not in verdict.sentence + verdict.kept


def test_the_tables_numbers_are_those_recomputed(hospital_fit):
    table, held = hospital_table(), hospital_fit.held_out
    assert held.columns == ("marker",)
    columns, found = ["smoking", "marker", "noise"], {future: [] for future in FUTURES}
    for name in sorted(set(table.hospital)):
        others, site = table[table.hospital != name], table[table.hospital == name]
        scale = StandardScaler().fit(others[columns].to_numpy())
        x, y = others[columns].to_numpy(), others.sick.to_numpy()
        model = LogisticRegression().fit(scale.transform(x), y)
        x, y = site[columns].to_numpy(), site.sick.to_numpy()
        order = hash_rows(x, y, 0).argsort(kind="stable")
        x, y = x[order], y[order]
        for future in FUTURES:
            flagged = np.array([columns.index(each) for each in held.flagged[name]], int)
            drawn = future_rows(x, y, flagged, future, True)
            own = [model.predict_proba(scale.transform(rows)) for rows in drawn]
            losses = [-np.log(each[np.arange(len(y)), y]).mean() for each in own]
            found[future].append(np.mean(losses))
    table = future_table(hospital_fit)
    assert table.columns[1:] == [
        "hospitals like these",
        "if marker told nothing",
        "if marker reversed",
    ]
    (line,) = [line for line in table.rows if line[0] == "logistic regression"]
    assert [float(cell) for cell in line[1:]] == pytest.approx(
        [np.mean(found[future]) for future in FUTURES], abs=6e-4
    )
    (constant,) = [line for line in table.rows if line[0] == "constant"]
    assert len(set(constant[1:])) == 1  # it uses no column


def test_the_kept_model_has_the_least_worst_regret(hospital_fit):
    held = hospital_fit.held_out
    asked = [each.name for each in held.candidates if each.is_asked]
    means = np.array([[held.losses(n, f).mean() for f in FUTURES[:2]] for n in asked])
    regret = (means / means.min(0)).max(1)
    assert hospital_fit.kept.name == asked[int(regret.argmin())]
    own, erm = (held.losses(name) for name in (hospital_fit.kept.name, "erm"))
    cost = 100 * (own - erm).mean() / erm.mean()
    verb = "costs" if cost > 0 else "saves"
    assert f"it {verb} {abs(cost):.2g} % (standard error" in hospital_fit.verdict.kept


def test_the_insurance_curve_has_a_point_per_model(hospital_fit):
    axes = hospital_fit.plot_insurance()
    held = hospital_fit.held_out
    points = {tuple(p) for line in axes.lines for p in np.round(line.get_xydata(), 9)}
    for name in ("erm", "without", "constant", "wri 1.6"):
        x, *ys = (held.losses(name, future).mean() for future in FUTURES)
        assert all((round(x, 9), round(y, 9)) in points for y in ys), name


@pytest.mark.slow
def test_nothing_flagged_keeps_the_presets_weight_and_says_what_could_be_seen(tmp_path):
    fit = fitted(steady_table(), tmp_path, "ill", "city")
    assert fit.verdict.answer == "likely"
    assert "no column's relation to 'ill' differs between the 4 cities" in fit.verdict.sentence
    assert "would detect it in about 80 % of cases" in fit.verdict.sentence
    assert fit.kept.name == "wri 1.6"
    table = future_table(fit)
    assert table.columns == ["loss (log-loss)", "cities like these"]
    assert not any("without" in line[0] for line in table.rows)
    with pytest.raises(InputError, match="there is no curve"):
        fit.plot_insurance()


@pytest.mark.slow
def test_a_model_no_better_than_a_constant_is_called_so_first(tmp_path):
    fit = fitted(steady_table(signal=0.0), tmp_path, "ill", "city")
    assert fit.held_out.difference(fit.kept.name, "constant").value > 0
    assert fit.verdict.answer == "no"
    assert fit.verdict.sentence.startswith("No: at cities left out it is no better than a constant")
    assert "not fit for use" in fit.verdict.sentence


@pytest.mark.slow
def test_another_model_is_kept_if_asked(tmp_path):
    table = hospital_table(80)
    fit = fitted(table, tmp_path, "sick", "hospital", keep="without")
    rows = table.drop(columns=["sick", "hospital"])
    moved = rows.assign(marker=rows.marker + 100)
    assert np.allclose(fit.model.predict_proba(rows), fit.model.predict_proba(moved))
    assert fit.verdict.kept.startswith(
        "Kept: ERM without marker, as asked; the rule would keep WRI"
    )
    with pytest.raises(InputError, match="--keep without: no column is flagged; use --keep erm"):
        fitted(steady_table(), tmp_path, "ill", "city", keep="without", fast=True)


@pytest.mark.slow
def test_categories_of_a_column_are_flagged_and_moved_together(tmp_path):
    random = np.random.default_rng(0)
    site = np.repeat(np.arange(4), 150)
    age = random.normal(size=600)
    ill = (age + random.logistic(size=600) > 0).astype(int)
    same = random.random(600) < np.where(site % 2, 0.9, 0.1)
    ward = np.where(same == ill, "a", random.choice(["b", "c"], 600))
    frame = pd.DataFrame({"age": age, "ward": ward, "ill": ill, "site": [f"s{k}" for k in site]})
    fit = fitted(frame, tmp_path, "ill", "site")
    assert [change.column for change in fit.changes] == ["ward"]
    assert "it reverses at " in fit.verdict.sentence
    held = fit.held_out
    assert all("ward" in own for own in held.flagged.values())
    alone = [held.losses("without", future) for future in FUTURES]
    assert np.allclose(alone[0], alone[1])  # no encoded column of it is left in the model


@pytest.mark.slow
def test_with_few_sites_no_saving_is_stated(tmp_path):
    fit = fitted(hospital_table(80).query("hospital != 'west'"), tmp_path, "sick", "hospital")
    assert "%" not in fit.verdict.kept


@pytest.mark.slow
def test_a_better_network_is_recommended(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(1200, 2))
    y = (np.abs(x[:, 0]) > 0.7).astype(int)
    site = np.repeat(["u", "v", "w", "z"], 300)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "ill": y, "site": site})
    fit = fitted(frame, tmp_path, "ill", "site", predictors=("linear", "network"))
    (advice,) = fit.verdict.advice
    assert "beats linear ERM at sites left out by more than chance" in advice
    assert "--hidden 32,16" in advice


@pytest.mark.parametrize(
    ("column", "one", "many"),
    [
        ("hospital", "hospital", "hospitals"),
        ("City", "city", "cities"),
        ("branch", "branch", "branches"),
        ("site_id", "site", "sites"),
        ("campus", "site", "sites"),
        ("file", "site", "sites"),
    ],
)
def test_sites_are_called_by_the_users_word(column, one, many):
    assert SiteWord.of(column) == (one, many)

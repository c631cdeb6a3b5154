"""Pipelines that end in an estimator: the environment survives, and so does everything on disk."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

import wri
from hospitals import hospitals
from wri.errors import InputError
from wri.estimators import load
from wri.saving.values import pack, record_digest, unpack

QUICK = {"steps": 5, "penalty_weight": None, "site_spread": False}
NUMBERS = ["cause", "marker", "noise"]
METHODS = (
    "predict",
    "predict_proba",
    "score_samples",
    "typicality",
    "verdict",
    "nearest_environment",
)


def table(n=30, seed=0):
    """Numbers with gaps, two columns of texts, and the site."""
    X, y, site = hospitals(n, seed)
    draw = np.random.default_rng(seed)
    rows = pd.DataFrame(X, columns=NUMBERS)
    rows.loc[::5, "marker"] = np.nan
    rows["ward"] = draw.choice(["north", "south", "tent", "ship"], len(y), p=[0.5, 0.4, 0.05, 0.05])
    rows["blood"] = draw.choice(np.array(["a", "b", None], object), len(y))
    return rows.assign(site=site), y


def encoder(**options):
    numbers = Pipeline([("fill", SimpleImputer(add_indicator=True)), ("scale", StandardScaler())])
    words = OneHotEncoder(handle_unknown="ignore", min_frequency=5, **options)
    return make_column_transformer((numbers, NUMBERS), (words, ["ward", "blood"]))


def made(**options):
    return wri.make_pipeline(encoder(), wri.VRExClassifier(environment="site", **QUICK, **options))


@pytest.fixture(scope="module")
def pipeline():
    return made().fit(*table())


def same(one, other, X, methods=METHODS):
    for method in methods:
        expected, found = getattr(one, method)(X), getattr(other, method)(X)
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist()
        if expected.dtype != object:
            assert found.tobytes() == expected.tobytes()


def test_the_environment_survives_a_column_transformer(pipeline):
    rows, y = table()
    assert pipeline[-1].environments_.tolist() == sorted(set(rows["site"]))
    assert not any("site" in name for name in pipeline[:-1].get_feature_names_out())
    by_hand = wri.VRExClassifier(**QUICK)
    ready = encoder().fit(rows.drop(columns="site"))
    dense = ready.transform(rows.drop(columns="site"))
    by_hand.fit(dense, y, groups=rows["site"])
    assert by_hand.parameters_.tolist() == pipeline[-1].parameters_.tolist()
    same(pipeline, pipeline, rows)
    new = table(seed=1)[0]
    for method in METHODS:
        with_site, without = (getattr(pipeline, method)(t) for t in (new, new.drop(columns="site")))
        assert with_site.tolist() == without.tolist()
    named = pipeline.score_new_site(new).meaning
    numbered = by_hand.score_new_site(ready.transform(new)).meaning
    for number, name in enumerate(pipeline[:-1].get_feature_names_out()):
        numbered = numbered.replace(f"column {number}", name)
    assert named == numbered
    assert pipeline.score(new, y) == np.mean(pipeline.predict(new) == y)
    assert pipeline.classes_.tolist() == [0, 1]


def test_one_pass_tells_what_the_single_methods_tell(pipeline):
    new = table(seed=1)[0]
    found = pipeline.assess(new)
    assert found.predictions.tolist() == pipeline.predict(new).tolist()
    assert found.probabilities.tolist() == pipeline.predict_proba(new).tolist()
    assert found.scores.tolist() == pipeline.score_samples(new).tolist()
    assert found.typicality.tolist() == pipeline.typicality(new).tolist()
    assert found.verdicts.tolist() == pipeline.verdict(new).tolist()
    assert found.nearest.tolist() == pipeline.nearest_environment(new).tolist()
    regressor = wri.ERMRegressor(environment="site", **QUICK)
    model = wri.make_pipeline(encoder(), regressor).fit(table()[0], table()[0]["cause"])
    found = model.assess(new)
    assert found.probabilities is None
    assert found.predictions.tolist() == model.predict(new).tolist()
    assert not hasattr(model, "predict_proba")


def test_groups_and_weights_reach_the_last_step():
    rows, y = table()
    site = rows.pop("site")
    weights = np.where(site == site.iloc[0], 2.0, 1.0)
    plain = wri.make_pipeline(encoder(), wri.ERMClassifier(**QUICK))
    short = clone(plain).fit(rows, y, groups=site, sample_weight=weights)
    long = clone(plain).fit(
        rows, y, ermclassifier__groups=site, ermclassifier__sample_weight=weights
    )
    assert short[-1].n_environments_ == long[-1].n_environments_ == 4
    assert short[-1].parameters_.tolist() == long[-1].parameters_.tolist()
    weights[:] = 0
    weights[::2] = 1
    half = clone(plain).fit(rows, y, groups=site, sample_weight=weights)
    assert half[-1].n_held_out_ < short[-1].n_held_out_
    with pytest.raises(InputError, match="different environments"):
        made().fit(rows.assign(site=site), y, groups=np.arange(len(y)) % 2)


@pytest.mark.slow
def test_every_fold_of_cross_validation_sees_the_environments():
    rows, y = table(15)
    cv = LeaveOneGroupOut()
    found = cross_validate(
        made(), rows, y, groups=rows["site"], cv=cv, return_estimator=True, error_score="raise"
    )
    assert [each[-1].n_environments_ for each in found["estimator"]] == [3] * 4
    grid = GridSearchCV(made(), {"vrexclassifier__penalty_weight": [0.0, 1.0]}, cv=cv)
    grid.fit(rows, y, groups=rows["site"])
    assert grid.best_estimator_[-1].n_environments_ == 4


@pytest.mark.slow
def test_every_fold_sees_the_environments_where_metadata_is_routed():
    rows, y = table(15)
    site, cv = rows["site"].to_numpy(), LeaveOneGroupOut()
    bare = wri.make_pipeline(encoder(), wri.ERMClassifier(**QUICK))
    with sklearn.config_context(enable_metadata_routing=True):
        for model, X in ((made(), rows), (bare, rows.drop(columns="site"))):
            found = cross_validate(
                model, X, y, params={"groups": site}, cv=cv, return_estimator=True
            )
            assert [each[-1].n_environments_ for each in found["estimator"]] == [3] * 4
        scaled = wri.make_pipeline(
            SimpleImputer(),
            StandardScaler().set_fit_request(sample_weight=True),
            wri.ERMClassifier(**QUICK).set_fit_request(sample_weight=True),
        )
        weights = np.r_[0.0, np.ones(len(y) - 1)]
        scaled.fit(rows[NUMBERS], y, groups=site, sample_weight=weights)
        filled = SimpleImputer().fit_transform(rows[NUMBERS])
        assert np.allclose(scaled[1].mean_, filled[1:].mean(0))


def test_scikit_learns_pipeline_says_how_the_column_is_kept():
    rows, y = table()
    with pytest.raises(InputError, match=r"use wri\.make_pipeline, which reads the column before"):
        Pipeline([("encode", encoder()), ("model", made()[-1])]).fit(rows, y)
    with pytest.raises(InputError, match="has no column 'site', which environment= names"):
        made().fit(rows.drop(columns="site"), y)
    for last in (LogisticRegression(), StandardScaler()):
        with pytest.raises(InputError, match="last step must be one of wri's estimators"):
            wri.make_pipeline(encoder(), last)
    with pytest.raises(NotFittedError):
        made().predict(rows)


def test_memory_keeps_transformers(tmp_path):
    rows, y = table()
    model = wri.make_pipeline(encoder(), made()[-1], memory=str(tmp_path)).fit(rows, y)
    same(model, made().fit(rows, y), rows)


def test_a_pipeline_comes_back(pipeline, tmp_path):
    pipeline.save(tmp_path / "model")
    for loaded in (load(tmp_path / "model"), type(pipeline).load(tmp_path / "model")):
        new = table(seed=2)[0]
        new.loc[3, "ward"] = "a ward nobody has seen"
        new.loc[4, NUMBERS] = np.nan
        same(pipeline, loaded, new)
        assert loaded.score_new_site(new).meaning == pipeline.score_new_site(new).meaning
        assert repr(loaded) == repr(pipeline)
        assert (
            loaded[:-1].get_feature_names_out().tolist()
            == pipeline[:-1].get_feature_names_out().tolist()
        )
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again/model.json").read_text() == (
        tmp_path / "model/model.json"
    ).read_text()
    rows, y = table()
    same(clone(loaded).fit(rows, y), pipeline, new)
    with pytest.raises(InputError, match=r"holds EnvironmentPipeline, not WRIClassifier"):
        wri.WRIClassifier.load(tmp_path / "model")


TRANSFORMERS = {
    "scaler without mean": StandardScaler(with_mean=False),
    "scaler without scale": StandardScaler(with_std=False),
    "robust": RobustScaler(quantile_range=(10.0, 90.0)),
    "variance": VarianceThreshold(0.01),
    "passthrough": "passthrough",
    "pandas": StandardScaler().set_output(transform="pandas"),
    "steps": Pipeline([("none", "passthrough"), ("robust", RobustScaler())]),
    "columns": ColumnTransformer(
        [
            ("robust", RobustScaler(), [0]),
            ("gone", "drop", [1]),
            ("empty", StandardScaler(), []),
        ],
        remainder="passthrough",
        transformer_weights={"robust": 2.0},
    ),
    "constant": SimpleImputer(strategy="constant", fill_value=-1.5, add_indicator=True),
    "zeros": SimpleImputer(missing_values=0, strategy="most_frequent", add_indicator=True),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.slow
def test_every_known_transformer_comes_back_to_the_last_bit(name, tmp_path):
    X, y, site = hospitals(20)
    X = np.round(X, 1)
    model = wri.make_pipeline(TRANSFORMERS[name], wri.ERMClassifier(**QUICK))
    for given in (X, pd.DataFrame(X, columns=NUMBERS)):
        model.fit(given, y, groups=site).save(tmp_path / "model")
        loaded = load(tmp_path / "model")
        same(model, loaded, given)
        assert repr(loaded) == repr(model)


def test_a_pipeline_that_only_passes_rows_through_describes_a_new_site():
    X, y, site = hospitals(20)
    rows = pd.DataFrame(X, columns=NUMBERS)
    model = wri.make_pipeline("passthrough", wri.ERMClassifier(**QUICK)).fit(rows, y, groups=site)
    assert model.score_new_site(rows).columns == tuple(NUMBERS)


@pytest.mark.parametrize(
    "words",
    [
        OneHotEncoder(drop="first", max_categories=3),
        OneHotEncoder(drop="if_binary", sparse_output=False),
        OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=0.1),
        OneHotEncoder(handle_unknown="ignore", min_frequency=10_000, dtype=np.float32),
        OneHotEncoder(categories=[["ship", "north", "south", "tent"], ["b", "a", np.nan]]),
        OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=-2, encoded_missing_value=-1
        ),
        OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=9, min_frequency=20,
            encoded_missing_value=-1,
        ),
        Pipeline(
            [
                ("fill", SimpleImputer(strategy="most_frequent")),
                ("ordinal", OrdinalEncoder()),
            ]
        ),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.slow
def test_encoders_come_back_with_rare_and_missing_categories(words, tmp_path):
    rows, y = table()
    columns = make_column_transformer(
        (words, ["ward", "blood"]), (OneHotEncoder(), make_column_selector("cause")),
        (SimpleImputer(), ["marker"]), sparse_threshold=0.9,
    )  # fmt: skip
    rows["cause"] = np.sign(rows["cause"]).astype(int)
    rows["blood"] = rows["blood"].fillna(np.nan)  # pandas 2 keeps None, which no encoder is given
    model = wri.make_pipeline(columns, wri.ERMClassifier(environment="site", **QUICK)).fit(rows, y)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    same(model, loaded, rows)
    names = [each[:-1].get_feature_names_out().tolist() for each in (model, loaded)]
    assert names[0] == names[1]
    encoder = words[-1] if isinstance(words, Pipeline) else words
    if encoder.handle_unknown != "error":
        same(model, loaded, rows.assign(ward="new"))
    else:
        for each in (model, loaded):
            with pytest.raises(ValueError, match="unknown categories"):
                each.predict(rows.assign(ward="new"))


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (PCA(2), "step 'pca' is PCA, which cannot be saved without code"),
        (FunctionTransformer(np.abs), "FunctionTransformer"),
        (make_column_transformer((PCA(1), [0, 1])), "step 'columntransformer.pca' is PCA"),
        (Pipeline([("deep", Pipeline([("pca", PCA(1))]))]), "step 'pipeline.deep.pca' is PCA"),
    ],
)
def test_a_transformer_that_cannot_be_saved_is_named(step, said, tmp_path):
    X, y, site = hospitals(20)
    model = wri.make_pipeline(step, wri.ERMClassifier(**QUICK)).fit(X, y, groups=site)
    with pytest.raises(InputError, match=rf"cannot be saved: .*{re.escape(said)}.*apply"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def steps_of(record):
    return record["preprocessing"]["steps"][0]["is"]


def numbers_of(record):
    return steps_of(record)["parts"][0]["is"]["steps"]


def words_of(record):
    return steps_of(record)["parts"][1]["is"]


def add_parts(record, count, width):
    """Parts of no columns that announce many."""
    part = {"is": "passthrough", "columns": [], "width": width}
    steps_of(record)["parts"] += [{"name": f"part {n}", **part} for n in range(count)]


def add_steps(record, count):
    """Many transformers that need few bytes each."""
    step = {"class": "Pipeline", "steps": []}
    steps = record["preprocessing"]["steps"]
    steps += [{"name": f"step {n}", "is": step} for n in range(count)]


def add_wide_texts(record):
    """40 arrays of 50 texts of one letter, each in 40 kB."""
    texts = {"array": "<U9999", "shape": [50], "values": ["a"] * 50}
    words_of(record)["learned"]["categories"] = [texts] * 40


HOSTILE = [
    (lambda r: r.update(preprocessing=[]), "preprocessing has the wrong type"),
    (lambda r: r["preprocessing"].update(code="rm"), "missing or unknown: code"),
    (lambda r: steps_of(r).update({"class": "os.system"}), "'os.system' is unknown"),
    (
        lambda r: steps_of(r).update(n_features=10**12),
        "transformers have 1,000,000,000,0.* columns",
    ),
    (lambda r: steps_of(r).update(output={}), "output {} is unknown"),
    (lambda r: add_parts(r, 200, width=1_000_000), "transformers have 200,000,0.* columns"),
    (lambda r: add_wide_texts(r), "arrays would take 79,9.* bytes"),
    (lambda r: add_steps(r, 2000), "it has 2,0.. transformers"),
    (lambda r: steps_of(r).update(remainder="rm"), "remainder is invalid"),
    (lambda r: steps_of(r)["parts"][0].update(width=3), "preprocessing gives|number of columns"),
    (lambda r: steps_of(r)["parts"][0].update(columns=["cause", "x", "y"]), "save the model again"),
    (lambda r: numbers_of(r)[0]["is"]["parameters"].update(strategy="rm"), "strategy"),
    (lambda r: numbers_of(r)[0]["is"]["parameters"].update(shell="rm"), "shell"),
    (
        lambda r: numbers_of(r)[0]["is"]["learned"].update(indicated=[7]),
        "preprocessing is invalid .*index 7 is out",
    ),
    (lambda r: numbers_of(r)[1]["is"]["learned"].update(mean_="a"), "mean_ holds invalid values"),
    (
        lambda r: numbers_of(r)[1]["is"]["learned"]["mean_"].update(values=[0.5], shape=[1]),
        "mean_ holds invalid values",
    ),
    (
        lambda r: numbers_of(r)[1]["is"]["learned"]["mean_"].update(array="<U9999"),
        "values of another type",
    ),
    (lambda r: words_of(r)["learned"].update(rare=[[0, 0], None]), "preprocessing holds invalid"),
    (lambda r: words_of(r)["learned"].update(more=1), "preprocessing holds invalid values"),
    (lambda r: steps_of(r).update(sparse="yes"), "preprocessing holds invalid values"),
    (
        lambda r: words_of(r)["learned"].update(rare=[[99], None]),
        "preprocessing is invalid .*index 99 is out",
    ),
    (lambda r: words_of(r)["learned"].pop("categories"), "preprocessing is invalid .*categories"),
    (lambda r: words_of(r)["learned"]["categories"].pop(), "save the model again"),
    (lambda r: words_of(r).update(output="polars"), "output 'polars' is unknown"),
    (lambda r: words_of(r)["parameters"].update(dtype=["a"]), "preprocessing is invalid"),
    (
        lambda r: steps_of(r)["parts"][0].update(columns=["cause", {"type": "float64"}]),
        "preprocessing is invalid",
    ),
]


@pytest.mark.parametrize(("change", "words"), HOSTILE)
def test_a_record_that_says_something_else(change, words, pipeline, tmp_path):
    folder = tmp_path / "model"
    pipeline.save(folder)
    record = json.loads((folder / "model.json").read_text())
    change(record)
    (folder / "model.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="was changed after it was written"):
        load(folder)
    record["digest"] = record_digest(record)
    (folder / "model.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=words) as caught:
        load(folder)
    assert str(folder) in str(caught.value)


def test_a_record_starts_no_processes(pipeline, tmp_path):
    pipeline.save(tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    record = json.loads(path.read_text())
    assert "n_jobs" not in path.read_text()
    steps_of(record)["parameters"]["n_jobs"] = 12
    record["digest"] = record_digest(record)
    path.write_text(json.dumps(record))
    assert load(tmp_path / "model")[0].n_jobs is None


def test_an_encoder_of_many_columns_and_categories_is_refused(pipeline, tmp_path):
    """The made-up rows would have as many cells as columns times categories."""
    pipeline.save(tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    record = json.loads(path.read_text())
    one = {"array": "|O", "shape": [1], "values": ["a"]}
    many = {"array": "|O", "shape": [3000], "values": [str(n) for n in range(3000)]}
    learned = words_of(record)["learned"]
    learned.update(n_features=1000, feature_names=None, rare=[None] * 1000)
    learned["categories"] = [many, *[one] * 999]
    record["digest"] = record_digest(record)
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match="its categories take 6,000,000 cells to read"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    "value",
    [
        1 / 3, -0.0, 5e-324, np.float64(1e300), [1, None, "a"], (1, (2.5,)),
        {"a": np.array([np.inf, 0.1])}, np.array(["a", None, np.nan], object), np.float32,
        np.array([[1, 2], [3, 4]], np.int8), np.array(["ä", "b c"]), True,
    ],
)  # fmt: skip
def test_packed_values_come_back(value):
    found = unpack(json.loads(json.dumps(pack(value), allow_nan=False)))
    assert repr(found) == repr(value.item() if isinstance(value, np.generic) else value)

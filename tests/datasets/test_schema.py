"""What columns hold, and the preprocessing that follows from it."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer

import wri
from wri.datasets.columns import ColumnReader, MedianImputer
from wri.datasets.schema import TableSchema
from wri.datasets.table_rows import read_rows
from wri.errors import InputError
from wri.estimators import load

N = 60


def draw(seed=0):
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.normal(50, 9, N).round(1),
            "text number": [f" {value:.2f} " for value in random.normal(size=N)],
            "smoker": random.choice(["Yes", "no ", None], N),
            "ward": random.choice(["north", "south"], N),
            "grade": random.integers(1, 5, N),
            "site": np.arange(N) % 3,
            "y": random.integers(2, size=N),
        }
    )


def kinds(table, **options):
    return {c.name: c.kind for c in TableSchema.infer(table, **options).columns}


CELLS = {
    "number": [1.5, 2.5] * 30,
    "number as text": ["1", " 2.5", "-3e2 ", "?", "NA", ""] * 10,
    "number with dashes": ["1", " 2.5", "-3e2 ", "-", "--", "."] * 10,
    "mixed": [*(f"{n / 7:.2f}" for n in range(50)), *["< 5", "haemolysed"] * 5],
    "yes/no": ["yes", "NO", " y ", None, "", "n"] * 10,
    "yes/no as bool": [True, False] * 30,
    "yes/no as 0 and 1": [0, 1] * 30,
    "yes/no as 0.0 and 1.0": [0.0, 1.0, np.nan] * 20,
    "category": ["a", "b", "none"] * 20,
    "category of one and missing": ["a", None] * 30,
    "constant": [7] * 60,
    "constant as missing": [None, np.nan, " "] * 20,
    "date": ["2020-01-02", "2021-12-31 10:00"] * 30,
    "date in points": ["31.12.2021", "1.1.2020"] * 30,
    "date as time": ["10:30", "9:05:00"] * 30,
    "date as such": list(pd.date_range("2020", periods=60)),
    "id": [f"P{i}" for i in range(60)],
    "id as count": list(range(100, 160)),
    "text": [f"patient {i} feels quite well" for i in range(60)],
    "number of many different": [float(i) + 0.5 for i in range(60)],
    "number counted twice": [1, 2, 3, 4, 5, 6] * 10,
}


@pytest.mark.parametrize("name", CELLS)
def test_what_a_column_holds(name):
    kind = next(kind for kind in ("yes/no", *name.split()) if name.startswith(kind))
    assert kinds(pd.DataFrame({"x": CELLS[name]})) == {"x": kind}


def test_a_name_makes_numbers_an_id():
    random = np.random.default_rng(0)
    numbers = random.choice(10**6, 60, replace=False)
    assert kinds(pd.DataFrame({"income": numbers})) == {"income": "number"}
    for name in ("patient_id", "ID", "patientId", "Unnamed: 0"):
        assert kinds(pd.DataFrame({name: numbers})) == {name: "id"}


def test_kinds_can_be_given_and_columns_left_out():
    table = draw()
    found = kinds(table, target="y", kinds={"grade": "category"}, leave_out=["age"])
    assert found["grade"] == "category"
    assert found["age"] == "left out"
    with pytest.raises(InputError, match="no column 'ages'; it has 'age', "):
        TableSchema.infer(table, kinds={"ages": "number"})
    with pytest.raises(InputError, match="kind of column 'age' must be one of number, yes/no"):
        TableSchema.infer(table, kinds={"age": "float"})
    with pytest.raises(InputError, match="'y' is the target or the environment"):
        TableSchema.infer(table, target="y", leave_out=["y"])
    with pytest.raises(InputError, match="columns but no rows"):
        TableSchema.infer(table[:0])


def test_refused_columns_are_named_with_remedies():
    table = draw().assign(born="2001-02-03", note=[f"a long note {i}" for i in range(N)])
    table.loc[0, "born"] = "2001-02-04"
    schema = TableSchema.infer(table, "y", "site")
    assert [column.name for column in schema.refused] == ["born", "note"]
    with pytest.raises(InputError, match=r"'born' looks like a date.*'note' looks like free text"):
        schema.make_preprocessing()
    with pytest.raises(InputError, match="no column is left"):
        TableSchema.infer(table[["site", "y"]].assign(c=1), "y", "site").check()


def test_the_schema_shows_itself():
    schema = TableSchema.infer(draw(), "y", "site")
    lines = "\n".join(schema.as_lines())
    assert "ward         category  north, south" in lines
    missing = draw()["smoker"].isna().sum()
    assert f"smoker       yes/no    {missing} missing" in lines


def test_cells_become_numbers_and_indicators():
    table = pd.DataFrame(
        {
            "age": [1.0, np.nan, 3.0, 5.0],
            "smoker": ["yes", "no", "", "yes"],
            "ward": ["a", "b", "a", "b"],
            "same": "x",
        }
    )
    schema = TableSchema.infer(table, kinds={"ward": "category"})
    reader, encode = schema.make_preprocessing()
    found = encode.fit_transform(reader.fit_transform(table))
    names = encode.get_feature_names_out().tolist()
    assert names == [
        *("age", "smoker", "missingindicator_age", "missingindicator_smoker", "ward_a", "ward_b")
    ]
    assert found.tolist() == [
        [1, 1, 0, 0, 1, 0],
        [3, 0, 1, 0, 0, 1],  # the median
        [3, 1, 0, 1, 1, 0],
        [5, 1, 0, 0, 0, 1],
    ]
    new = pd.DataFrame({"age": ["2"], "smoker": [True], "ward": ["never seen"]})
    assert encode.transform(reader.transform(new)).tolist() == [[2, 1, 0, 0, 0, 0]]


@pytest.mark.parametrize("n", [4, 101])
def test_medians_are_those_of_scikit_learn(n):
    random = np.random.default_rng(n)
    X = pd.DataFrame(random.normal(size=(n, 4)), columns=list("abcd")).assign(empty=np.nan)
    X = X.mask(random.random(X.shape) < 0.3).assign(full=random.normal(size=n))
    settings = {"strategy": "median", "add_indicator": True, "keep_empty_features": True}
    plain, ours = (kind(**settings).fit(X) for kind in (SimpleImputer, MedianImputer))
    np.testing.assert_array_equal(ours.transform(X), plain.transform(X))
    assert list(ours.get_feature_names_out()) == list(plain.get_feature_names_out())


def test_rare_categories_share_a_column():
    cells = ["a"] * 30 + ["b"] * 28 + ["c", "d"]
    table = pd.DataFrame({"ward": cells, "x": np.arange(60) % 7})
    reader, encode = TableSchema.infer(table).make_preprocessing()
    found = encode.fit_transform(reader.fit_transform(table))
    assert found[-2:, 1:].tolist() == [[0, 0, 1], [0, 0, 1]]


def test_codes_are_one_category_however_they_are_written():
    reader = ColumnReader([{"name": "code", "kind": "category", "categories": ["1", "2"]}])
    for cells in ([1, 2], [1.0, 2.0], ["1", "2"], ["01", " 2.0"]):
        frame = pd.DataFrame({"code": cells})
        assert reader.fit(frame).transform(frame)["code"].tolist() == ["1", "2"]


def test_a_table_that_does_not_fit_is_refused_with_all_reasons():
    table = draw()
    schema = TableSchema.infer(table, "y", "site")
    reader = schema.make_preprocessing()[0].fit(table.drop(columns="site"))
    fits = table.drop(columns=["site", "y"])
    assert len(reader.transform(fits)) == N
    renamed = fits.rename(columns={"age": "years"}).drop(columns="ward")
    with pytest.raises(InputError, match=r"no column 'age', 'ward', .*not in training: 'years'"):
        reader.transform(renamed)
    wrong = fits.assign(age="old", smoker="often")
    wrong.index = range(1, N + 1)
    with pytest.raises(InputError, match=r"'age' \(row 1 is 'old', not a number\), 'smoker' \(row"):
        reader.transform(wrong)
    with pytest.raises(InputError, match=r"'age' \(row 3 is infinite\)"):
        reader.transform(fits.assign(age=np.where(np.arange(N) == 3, np.inf, 1)))
    with pytest.warns(UserWarning, match="ignored: 'years'"):
        reader.transform(fits.assign(years=1))
    with pytest.raises(InputError, match="twice"):
        reader.transform(pd.concat([fits, fits[["age"]]], axis=1))
    with pytest.raises(InputError, match="give a DataFrame"):
        reader.transform(fits.to_numpy())


def test_a_model_keeps_its_schema(tmp_path):
    table = draw()
    schema = TableSchema.infer(table, "y", "site")
    last = wri.ERMClassifier(environment="site", steps=5)
    model = wri.make_pipeline(*schema.make_preprocessing(), last).fit(table, table["y"])
    assert model[-1].n_environments_ == 3
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    found = TableSchema.of(loaded)
    assert (found.columns, found.target, found.environment) == (schema.columns, "y", "site")
    new = draw(1).drop(columns=["site", "y"])
    assert loaded.predict_proba(new).tobytes() == model.predict_proba(new).tobytes()
    assert TableSchema.of(loaded[-1]) is None


def test_dashes_are_missing_in_a_file_with_decimal_commas(tmp_path):
    path = tmp_path / "rows.csv"
    cells = [f"{n / 8:.2f}".replace(".", ",") for n in range(38)] + ["-", "-"]
    lines = [f"{cell};{n % 2};s{n % 4}" for n, cell in enumerate(cells)]
    path.write_text("\n".join(["lactate;y;site", *lines]))
    frame = read_rows([path], target="y", environment="site").X
    assert kinds(frame) == {"lactate": "number"}
    assert TableSchema.infer(frame).columns[0].missing == 2


ICD = [250, 401, 414, 428, 486, 786]


@pytest.mark.parametrize(
    ("name", "values", "codes"),
    [
        ("icd_code", ICD, True),
        ("diagnosis", ICD, False),
        ("ward", [1, 2, 3, 7], True),
        ("region", ["01", "02", "17"], True),
        ("dose", [100, 150, 250, 500], False),
        ("year", [2015, 2016, 2018, 2019], False),
        ("children", [0, 1, 2, 3], False),
        ("height", list(range(150, 190)), False),
        ("code", [0.5, 1.5, 2.5], False),
    ],
)
def test_numbers_that_look_like_codes_are_read_as_numbers_with_a_hint(name, values, codes):
    table = pd.DataFrame({name: values * 10})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        schema = TableSchema.infer(table)
    assert schema.columns[0].kind == "number"
    assert bool(schema.notes) == codes
    assert [str(each.message) for each in caught] == list(schema.notes)
    assert ("--category" in schema.as_lines()[0]) == codes
    if codes:
        assert f"column '{name}'" in schema.notes[0]
        assert f"--category {name}" in schema.notes[0]


@pytest.mark.parametrize("kind", ["number", "category"])
def test_a_kind_that_was_given_needs_no_hint(kind, recwarn):
    table = pd.DataFrame({"icd_code": ICD * 10})
    assert not TableSchema.infer(table, kinds={"icd_code": kind}).notes
    assert not recwarn.list

"""Tables from files: the same table from every format, and a clear word about every bad one."""

import io
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest

from wri.datasets import read_table
from wri.datasets.catalogue import load_builtin
from wri.errors import InputError

ROWS = pd.DataFrame(
    {
        "age": [61, 47, 70, 55, 33, 58],
        "site": ["Oslo", "Bergen", "Oslo", "Bergen", "Oslo", "Bergen"],
        "dose": [0.1, 1 / 3, 2e-9, 4.0, 5.5, -6.25],
        "y": ["sick", "well", "well", "sick", "sick", "well"],
    }
)


def save(frame, path):
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="writing and reading Parquet needs pyarrow")
        frame.to_parquet(path)
    else:
        np.savez(path, **{name: np.array(frame[name].tolist()) for name in frame})
    return path


def read(tmp_path, text, target="y", environment="site", task=None):
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    return read_table(path, target, environment, task)


def changed(**columns):
    return ROWS.assign(**columns).to_csv(index=False)


@pytest.fixture(params=[".csv", ".parquet", ".npz"])
def ending(request):
    return request.param


def test_every_format_gives_the_same_table(tmp_path, ending):
    table = read_table(save(ROWS, tmp_path / f"rows{ending}"), "y", "site")
    assert table.features == ("age", "dose")
    assert table.classes == ("sick", "well")
    bergen, oslo = table.environments
    assert (bergen.name, oslo.name) == ("Bergen", "Oslo")
    assert np.array_equal(bergen.x, [[47, 1 / 3], [55, 4], [58, -6.25]])
    assert np.array_equal(oslo.x, [[61, 0.1], [70, 2e-9], [33, 5.5]])
    assert bergen.y.tolist() == [1, 0, 1]
    assert oslo.y.tolist() == [0, 1, 0]


def test_a_data_set_comes_back_from_a_file_as_it_was(tmp_path, ending):
    tolerance = 1e-12 if ending == ".csv" else 0  # pandas 2 is not exact in the last digits
    data = load_builtin("simulation")
    frame = pd.concat(
        pd.DataFrame(e.x).rename(columns=str).assign(label=e.y, where=e.name) for e in data
    )
    shuffled = frame.sample(frac=1, random_state=0).sort_values("where", ascending=False)
    table = read_table(save(shuffled, tmp_path / f"rows{ending}"), "label", "where")
    assert table.features == tuple("0123456789")
    assert table.classes == ("0", "1", "2")
    for original, found in zip(data, table.environments, strict=True):
        assert found.name == original.name
        there = np.lexsort(found.x.T)
        here = np.lexsort(original.x.T)
        assert np.allclose(found.x[there], original.x[here], rtol=tolerance, atol=0)
        assert np.array_equal(found.y[there], original.y[here])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([10, 9, 2, 10, 9, 2], ("2", "9", "10")),
        ([1.0, -1.0, 1.0, -1.0, 1.0, 1.0], ("-1.0", "1.0")),
        ([True, False, True, False, True, False], ("False", "True")),
        (["b10", "b9", "b10", "b9", "b9", "b10"], ("b9", "b10")),
        ([0.5, 1.5, 0.5, 1.5, 0.5, 0.5], ("0.5", "1.5")),
    ],
)
def test_names_are_in_their_natural_order(tmp_path, ending, labels, expected):
    frame = ROWS.assign(y=labels, site=labels)
    table = read_table(save(frame, tmp_path / f"rows{ending}"), "y", "site")
    assert table.classes == expected
    assert tuple(e.name for e in table.environments) == expected
    for number, environment in enumerate(table.environments):
        assert set(environment.y) == {number}


def test_codes_with_leading_zeros_keep_them(tmp_path):
    table = read(tmp_path, changed(site=["007", "12", "007", "12", "12", "12"]))
    assert [e.name for e in table.environments] == ["007", "12"]


def test_a_block_of_an_archive_is_numbered_columns(tmp_path):
    path = tmp_path / "rows.npz"
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    np.savez(path, x=x, age=np.arange(6, dtype=np.int8), y=[0, 1] * 3, site=["a"] * 3 + ["b"] * 3)
    table = read_table(path, "y", "site")
    assert table.features == ("x0", "x1", "age")
    first, second = table.environments
    assert np.array_equal(first.x, [[0, 1, 0], [2, 3, 1], [4, 5, 2]])
    assert np.array_equal(second.x[:, :2], x[3:])


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (("f4", "f4"), "f4"),
        (("f4", "f8"), "f8"),
        (("i8", "f4"), "f8"),
        (("?", "i2"), "f4"),
        ((">f8", ">i4"), "f8"),
    ],
)
def test_features_are_as_wide_as_their_columns_and_rows_lie_together(tmp_path, types, expected):
    a, b = (np.array([0, 1, 1, 0], dtype) for dtype in types)
    np.savez(tmp_path / "rows.npz", a=a, b=b, y=[0, 1, 0, 1], site=[1, 1, 2, 2])
    for environment in read_table(tmp_path / "rows.npz", "y", "site").environments:
        assert environment.x.dtype == np.dtype(expected)
        assert environment.x.flags.c_contiguous


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffa,y,site\n1,0,u\n2,1,u\n3,0,v\n4,1,v\n",
        "a, y, site\n1, 0, u\n2, 1, u\n\n3, 0, v\n4, 1, v\n\n",
        '"a","y","site"\r\n"1",0,"u"\r\n2,1,u\r\n3,0,v\r\n4,1,v',
    ],
)
def test_marks_blanks_and_quotes_of_other_programs_are_understood(tmp_path, text):
    table = read(tmp_path, text)
    assert table.features == ("a",)
    assert [e.name for e in table.environments] == ["u", "v"]
    assert np.array_equal(np.concatenate([e.x for e in table.environments])[:, 0], [1, 2, 3, 4])


def test_the_index_of_a_filtered_frame_is_no_feature(tmp_path):
    frame = pd.concat([ROWS, ROWS])[lambda rows: rows.age > 40]
    table = read_table(save(frame, tmp_path / "rows.parquet"), "y", "site")
    assert table.features == ("age", "dose")


MISSING = [1.0, 2.0, None, 4.0, None, 6.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed(dose=MISSING), r"column 'dose', row 3 is missing \(2 in all\); fill"),
        (changed(dose=[1, 2, 3, np.inf, 5, 6]), "column 'dose', row 4 is infinite"),
        (changed(dose=[1, 2, 3, 4, "five", 6]), "column 'dose', row 5 is 'five', not a number"),
        (
            changed(town=["here"] * 6, age=["old"] * 6),
            "'age', row 1 is 'old', not a number; encode or drop 'age', 'town' .*--category",
        ),
        (changed(y=["a", None, "b"] * 2), r"column 'y', row 2 is missing .*2 in all"),
        (changed(y=["a", "NA", "b"] * 2), r"column 'y', row 2 is missing \(2 in all\)"),
        (changed(site=["a", "a", "b", "b", "", "b"]), "column 'site', row 5 is missing"),
        (changed(site=["1", "1.0"] * 3), "spells one number in several ways, '1', '1.0'"),
        (changed(site="Oslo"), "column 'site' holds only one site, 'Oslo'; at least two"),
        (
            changed(site=["a"] * 5 + ["b"]),
            "site 'b' of column 'site' has 1 row; at least 2 are needed: drop or merge",
        ),
        (changed(y="sick"), "column 'y' holds only one class, 'sick'; at least two are needed"),
        (changed(y=list("abcdef")), "6 different values in 6 rows, such as a; name a column of"),
        (changed(y=[0.1, 2, 3, 4, 5, None]), "column 'y', row 6 is missing"),
        ("a,a,y,site\n1,2,0,u\n", "column 'a' occurs twice; rename or drop one"),
        (",a,y,site\n0,2,0,u\n", r"column 1 has no name; .*index=False"),
        ("a,b,site\n1,2,u\n", "has no column 'y' for the target; it has 'a', 'b', 'site'"),
        ("a,b,y\n1,2,u\n", "has no column 'site' for the site; it has 'a', 'b', 'y'"),
        (f"{','.join('abcdefghijklm')}\n", "it has 'a', .*'f' and 7 more"),
        ("y,site\n1,u\n", "has no features: columns besides 'y' and 'site'"),
        ("a,y,site\n", "has columns but no rows"),
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a,y,site\n1,2,3\n1,2,3,4\n", "Expected 3 fields in line 3, saw 4"),
        ("a,y,site\n1,2,3,4\n1,2,3,4\n", "rows are longer than the header of 3"),
    ],
)
def test_a_bad_table_says_what_is_wrong_and_where(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, text)
    assert "rows.csv" in str(caught.value)


@pytest.mark.parametrize("labels", [np.linspace(0, 1, 25), np.arange(80)])
def test_a_measurement_is_a_number(tmp_path, labels):
    """Fractions of more than 20 values, or numbers of which most differ."""
    y = np.resize(labels, 100)
    text = pd.DataFrame({"a": range(100), "y": y, "site": [1, 2] * 50}).to_csv(index=False)
    found = read(tmp_path, text)
    assert found.classes is None
    np.testing.assert_allclose(found.environments[0].y, y[::2])
    if len(labels) == 25:
        assert len(read(tmp_path, text, task="classes").classes) == 25
    else:
        with pytest.raises(InputError, match="80 different values in 100 rows"):
            read(tmp_path, text, task="classes")


def test_classes_can_be_taken_for_numbers(tmp_path):
    found = read(tmp_path, changed(y=[0, 1, 2, 0, 1, 2]), task="numbers")
    assert found.classes is None
    assert sorted(np.concatenate([e.y for e in found.environments])) == [0, 0, 1, 1, 2, 2]
    with pytest.raises(InputError, match="row 2 is 'b', not a number"):
        read(tmp_path, changed(y=[0, "b", 2, 0, 1, 2]), task="numbers")
    with pytest.raises(InputError, match="is 1 in every row"):
        read(tmp_path, changed(y=1), task="numbers")
    with pytest.raises(InputError, match="task must be one of classes, numbers"):
        read(tmp_path, changed(), task="ranks")


def test_many_classes_of_many_rows_are_classes(tmp_path):
    frame = pd.DataFrame({"a": range(200), "y": np.arange(200) % 65, "site": [1, 2] * 100})
    assert len(read(tmp_path, frame.to_csv(index=False)).classes) == 65


def test_one_column_cannot_be_both(tmp_path):
    with pytest.raises(
        InputError, match="target 'site' and environment 'site' must be two columns"
    ):
        read(tmp_path, changed(), "site", "site")


Y, SITE = [0, 1, 0, 1], ["u", "u", "v", "v"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "No objects to concatenate"),
        ({"x": np.ones((4, 2)), "y": Y}, "no column 'site' .* it has 'x0', 'x1', 'y'"),
        ({"x": np.ones((3, 2)), "y": Y, "site": SITE}, "not 'x' 3 and 'site' 4"),
        (
            {"x": np.ones((4, 2, 2)), "y": Y, "site": SITE},
            r"Must pass 2-d input. shape=\(4, 2, 2\)",
        ),
        ({"x": 3.0, "y": Y, "site": SITE}, "cannot be read as .npz"),
        ({"x": Y, "y": np.eye(4), "site": SITE}, "no column 'y' for the target .*'y0'"),
        ({"x": np.eye(4), "x1": Y, "y": Y, "site": SITE}, "column 'x1' occurs twice"),
        ({"x": np.empty((4, 0)), "y": Y, "site": SITE}, "has no features"),
        ({"x": np.empty((0, 2)), "y": [], "site": []}, "has columns but no rows"),
        (
            {"x": np.array([1, "a", None, 2], object), "y": Y, "site": SITE},
            "cannot be read as .npz .*allow_pickle=False",
        ),
        ({"x": np.ones(4) * 1j, "y": Y, "site": SITE}, "column 'x', row 1 is '1j', not a number"),
        ({"x": [1, 2, np.nan, 4], "y": Y, "site": SITE}, "column 'x', row 3 is missing"),
        ({"x": Y, "y": Y, "site": ["u", "u", "", "v"]}, "column 'site', row 3 is missing"),
        ({"x": Y, "y": [0, 1, np.nan, np.inf], "site": SITE}, r"column 'y', row 3 .*2 in all"),
    ],
)
def test_a_bad_archive_names_its_array(tmp_path, arrays, message):
    np.savez(tmp_path / "rows.npz", **arrays)
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / "rows.npz", "y", "site")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.array([1, None, 3, 4, 5, 6], "Int64"), "column 'new', row 2 is missing"),
        (pd.array([True, False, None] * 2, "boolean"), "column 'new', row 3 is missing"),
        (pd.Categorical(["a", "b"] * 3), "column 'new', row 1 is 'a', not a number"),
        (pd.date_range("2020-01-01", periods=6), "column 'new', row 1 is '2020-01-01"),
    ],
)
def test_a_bad_parquet_column_is_named(tmp_path, column, message):
    path = save(ROWS.assign(new=column), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match=message):
        read_table(path, "y", "site")


def test_parquet_without_pyarrow_says_how_to_get_it(tmp_path, monkeypatch):
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="`pip install pyarrow`"):
        read_table(tmp_path / "rows.parquet", "y", "site")


def archive():
    file = io.BytesIO()
    np.savez(file, x=np.eye(4), y=Y, site=SITE)
    return file.getvalue()


@pytest.mark.parametrize("content", [changed().encode(), archive()[:-30], archive(), b"\xff\xfe\0"])
def test_a_file_that_is_not_what_its_ending_says_is_refused(tmp_path, ending, content):
    if ending == ".parquet":
        pytest.importorskip("pyarrow", reason="reading Parquet needs pyarrow")
    path = tmp_path / f"rows{ending}"
    path.write_bytes(content)
    if (ending, content) in ((".csv", changed().encode()), (".npz", archive())):
        read_table(path, "y", "site")
        return
    with pytest.raises(InputError, match=rf"rows{ending} cannot be read as {ending} \("):
        read_table(path, "y", "site")


def test_a_single_array_is_no_archive(tmp_path):
    with (tmp_path / "rows.npz").open("wb") as file:
        np.save(file, np.eye(3))
    with pytest.raises(
        InputError, match=r"it is not an archive\); save it again as an archive of np\.savez"
    ):
        read_table(tmp_path / "rows.npz", "y", "site")


def test_a_foreign_file_within_an_archive_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "rows.npz", "w") as file:
        file.writestr("notes.txt", "not an array")
    with pytest.raises(InputError, match=r"rows\.npz cannot be read as \.npz"):
        read_table(tmp_path / "rows.npz", "y", "site")


def test_an_empty_file_is_refused(tmp_path, ending):
    (tmp_path / f"rows{ending}").touch()
    with pytest.raises(InputError, match=r"is empty|cannot be read as"):
        read_table(tmp_path / f"rows{ending}", "y", "site")


def test_paths_that_are_no_tables(tmp_path):
    with pytest.raises(
        InputError, match=r"nowhere\.csv cannot be read: No such file or directory; check"
    ):
        read_table(tmp_path / "nowhere.csv", "y", "site")
    with pytest.raises(InputError, match=r"is a folder; name one \.csv, \.parquet or \.npz"):
        read_table(tmp_path, "y", "site")
    for name, ending in (("rows.xlsx", ".xlsx"), ("rows", "nothing")):
        (tmp_path / name).write_text("a")
        with pytest.raises(InputError, match=f"ends in '{ending}'; save it as .csv, .parquet"):
            read_table(str(tmp_path / name), "y", "site")


@pytest.mark.parametrize("column", ["x", "y", "site"])
def test_parquet_texts_that_are_no_utf8(tmp_path, column):
    pa, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
    ends = pa.py_buffer(np.arange(9, dtype=np.int32).tobytes())
    texts = pa.Array.from_buffers(pa.string(), 8, [None, ends, pa.py_buffer(b"a\xff" * 4)])
    columns = {"x": np.arange(8.0), "y": np.arange(8) % 2, "site": np.arange(8) // 4}
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({**columns, column: texts}), path)
    with pytest.raises(InputError, match=r"rows\.parquet cannot be read as \.parquet .*UTF8"):
        read_table(path, "y", "site")


def write_archive(path, **members):
    """An archive of arrays, or of what functions write."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                if callable(content):
                    content(file)
                else:
                    np.lib.format.write_array(file, np.asarray(content))
    return path


def test_long_doubles_of_an_archive_become_doubles(tmp_path):
    path = write_archive(tmp_path / "rows.npz", x=np.arange(4, dtype=np.longdouble), y=Y, site=SITE)
    assert read_table(path, "y", "site").x.dtype == np.float64


def test_a_header_that_announces_a_billion_rows_is_not_believed(tmp_path):
    def claim(file):
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
        np.lib.format.write_array_header_1_0(file, header)

    path = write_archive(tmp_path / "rows.npz", x=claim, y=Y, site=SITE)
    with pytest.raises(InputError, match=r"rows\.npz (does not fit into memory|cannot be read)"):
        read_table(path, "y", "site")


def test_an_archive_of_zeros_is_not_unpacked(tmp_path):
    """Three gigabytes in a file of three megabytes."""

    def zeros(file):
        shape = (3 << 17, 1 << 10)
        header = {"descr": "<f8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(3):  # the rest of what the directory announces is left out below
            file.write(bytes(1 << 20))

    path = write_archive(tmp_path / "rows.npz", x=zeros, y=Y, site=SITE)
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo("x.npy").file_size
    announced = data.replace(size.to_bytes(4, "little"), (3 << 30).to_bytes(4, "little"))
    assert announced != data
    path.write_bytes(announced)
    with pytest.raises(InputError, match=r"unpacks to 3,221,\d+,\d+ bytes, but at most 2,147,4"):
        read_table(path, "y", "site")


def test_names_that_no_file_has(tmp_path):
    for name in ("d" * 300 + ".csv", "d\0.csv"):
        with pytest.raises(InputError, match="cannot be read: ") as caught:
            read_table(tmp_path / name, "y", "site")
        assert len(str(caught.value)) < 200

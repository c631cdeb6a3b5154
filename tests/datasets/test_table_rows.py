"""Raw rows from files as other programs write them."""

import re

import numpy as np
import pandas as pd
import pytest

from wri.datasets.table_rows import read_rows
from wri.errors import InputError

PLAIN = "größe,ward,sick,site\n1.5,a,no,u\n2,b,yes,u\n3.25,a,no,v\n4,b,yes,v\n"


def read(tmp_path, content, **options):
    path = tmp_path / "rows.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_rows([path], "sick", "site", **options)


@pytest.mark.parametrize(
    ("content", "written"),
    [
        (PLAIN, ""),
        ("\ufeff" + PLAIN, ""),
        (PLAIN.replace("\n", "\r\n", 2), ""),
        (PLAIN.replace("\n", "\r"), ""),
        (PLAIN.encode("cp1252"), "encoding cp1252"),
        (PLAIN.encode("utf-16"), "encoding utf-16"),
        (PLAIN.replace(",", "\t"), "tab-separated"),
        (PLAIN.replace(",", "|"), "vertical bar-separated"),
        (PLAIN.replace(",", ";").replace(".", ","), "semicolon-separated, decimal comma"),
        (re.sub(r"(\d)\.(\d+)", r'"\1,\2"', PLAIN), "decimal comma"),
        (PLAIN.replace("ward", '"ward"').replace(",a,", ',"a",'), ""),
    ],
)
def test_one_table_in_many_spellings(tmp_path, content, written):
    rows = read(tmp_path, content)
    expected = pd.DataFrame({"größe": [1.5, 2, 3.25, 4], "ward": list("abab")})
    pd.testing.assert_frame_equal(
        rows.X.reset_index(drop=True), expected, check_dtype=False, check_index_type=False
    )
    assert rows.y.tolist() == ["no", "yes", "no", "yes"]
    assert rows.groups.tolist() == ["u", "u", "v", "v"]
    assert rows.files[0].written == written


def test_what_is_given_wins_over_what_would_be_found(tmp_path):
    text = "a;b;sick;site\n1,2;3,4;0;u\n5,6;7,8;1;u\n1,2;3,4;0;v\n5,6;7,8;1;v\n"
    assert read(tmp_path, text, delimiter=";").X["b"].tolist() == [3.4, 7.8, 3.4, 7.8]
    with pytest.raises(InputError, match="has no column 'sick' for the target"):
        read(tmp_path, text, delimiter=",")
    latin = PLAIN.encode("latin-1")
    assert "größe" in read(tmp_path, latin, encoding="latin-1").X
    with pytest.raises(
        InputError, match=r"--encoding ascii is unknown, or .* is not written in it"
    ):
        read(tmp_path, latin, encoding="ascii")


def test_quoted_cells_may_hold_line_ends_and_delimiters(tmp_path):
    text = 'note,sick,site\n"a\nb, c",0,u\nx,1,u\n"a\r\nb",0,v\nx,1,v\n'
    assert read(tmp_path, text).X["note"].tolist() == ["a\nb, c", "x", "a\r\nb", "x"]


def test_environments_named_nan_and_007_are_names(tmp_path):
    rows = read(tmp_path, "a,sick,site\n1,0,nan\n2,1,nan\n3,0,NA\n4,1,NA\n5,0,007\n6,1,007\n")
    assert rows.environments == {"007": 2, "NA": 2, "nan": 2}
    with pytest.raises(InputError, match="column 'site', row 2 is missing"):
        read(tmp_path, "a,sick,site\n1,0,u\n2,1,\n3,0,v\n4,1,v\n")


@pytest.mark.slow
def test_ten_thousand_columns(tmp_path):
    table = pd.DataFrame(np.arange(40_000).reshape(4, 10_000)).add_prefix("c")
    rows = read(tmp_path, table.assign(sick=[0, 1, 0, 1], site=list("uuvv")).to_csv(index=False))
    assert rows.X.shape == (4, 10_000)
    assert rows.X["c9999"].tolist() == [9_999, 19_999, 29_999, 39_999]


def test_a_composed_name_finds_its_decomposed_twin(tmp_path):
    rows = read(tmp_path, PLAIN.replace("größe", "gro\u0308ße"))
    assert list(rows.X) == ["größe", "ward"]


def test_classes_keep_their_type_and_numbers_are_told_from_them(tmp_path):
    text = "a,sick,site\n" + "".join(f"{k},{k % 2},{'uv'[k % 2]}\n" for k in range(6))
    assert read(tmp_path, text).y.dtype.kind == "i"
    assert read(tmp_path, text).task == "classes"
    assert read(tmp_path, text, task="numbers").y.dtype.kind == "f"
    text = text.replace(",1,", ",01,")
    assert set(read(tmp_path, text).y) == {"0", "01"}


def write_sites(tmp_path):
    frame = pd.DataFrame({"a": range(8), "sick": [0, 1] * 4})
    for name in ("oslo", "rome"):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    return frame


def test_every_file_is_a_site(tmp_path):
    write_sites(tmp_path)
    rows = read_rows([tmp_path / "*.csv"], "sick", None)
    assert rows.environments == {"oslo": 8, "rome": 8}
    assert [file.rows for file in rows.files] == [8, 8]
    assert rows.files[0].sha256 == rows.files[1].sha256


def test_a_column_in_one_file_only_is_named_unless_it_is_dropped(tmp_path):
    write_sites(tmp_path).assign(b=1).to_csv(tmp_path / "rome.csv", index=False)
    with pytest.raises(InputError, match=r"oslo\.csv has no column 'b', which other files have"):
        read_rows([tmp_path / "oslo.csv", tmp_path / "rome.csv"], "sick", None)
    rows = read_rows([tmp_path / "*.csv"], "sick", None, leave_out=["b"])
    assert list(rows.X) == ["a"]
    assert rows.left_out == ("b",)


def test_parquet_and_csv_give_the_same_rows(tmp_path):
    pytest.importorskip("pyarrow")
    read(tmp_path, PLAIN)
    pd.read_csv(tmp_path / "rows.csv").to_parquet(tmp_path / "rows.parquet")
    found = read_rows([tmp_path / "rows.parquet"], "sick", "site")
    assert found.y.tolist() == ["no", "yes", "no", "yes"]
    assert found.environments == {"u": 2, "v": 2}


def test_blocks_and_dropped_columns_are_no_features(tmp_path):
    text = "a,week,id,sick,site\n1,7,x1,0,u\n2,7,x2,1,u\n3,8,x3,0,v\n4,8,x4,1,v\n"
    rows = read(tmp_path, text, blocks="week", leave_out=["id"])
    assert list(rows.X) == ["a"]
    assert rows.blocks.tolist() == ["7", "7", "8", "8"]


def test_blanks_around_a_site_make_no_other_site(tmp_path):
    text = "a,sick,site\n1,no,u\n2,yes ,u \n3,no, u\n4,yes,v\n5,no,v\n"
    with pytest.warns(UserWarning, match="differ only in blanks") as caught:
        rows = read(tmp_path, text)
    assert rows.environments == {"u": 3, "v": 2}
    assert rows.y.tolist() == ["no", "yes", "no", "yes", "no"]
    told = [str(each.message) for each in caught]
    assert any("column 'site'" in text and "'u' and 'u '" in text for text in told)
    assert any("column 'sick'" in text and "'yes ' and 'yes'" in text for text in told)


def test_thousands_between_commas_are_no_decimals(tmp_path):
    lines = [f'"1,{place:03}",{place % 2},{"uv"[place // 2 % 2]}\n' for place in range(40)]
    rows = read(tmp_path, "".join(["größe,sick,site\n", *lines]))
    assert rows.files[0].written == ""
    assert rows.X["größe"].iloc[7] == "1,007"

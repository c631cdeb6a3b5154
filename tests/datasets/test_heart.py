"""The four hospitals' files are found where they may be, and missing values in any form are NaN."""

import numpy as np
import pytest

from wri.datasets import heart, load_heart, where_heart
from wri.errors import InputError

STAND_INS = {  # a few made-up patients a hospital
    "processed.cleveland.data": b"63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0\n"
    b"41.0,0.0,2.0,130.0,204.0,0.0,2.0,172.0,0.0,1.4,1.0,?,3.0,4\n",
    "processed.hungarian.data": b"28,1,2,130,132,0,2,185,0,0,?,-9,-9.0,1\n",
    "processed.switzerland.data": b"32,1,1,95,0,?,0,127,0,-.7,1,?,?,1\n",
    "processed.va.data": b"63,0,4,0,260,0,1,112,1,3,2,?,?,2\n44,1,4,130,0,0,1,127,0,0,?,?,?,0\n",
}
needs_heart = pytest.mark.skipif(where_heart() is None, reason=f"no heart data: {heart.REMEDY}")


def no_network(address):
    raise OSError(f"{address} is out of reach")


def write(folder, files=STAND_INS):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


@pytest.fixture
def cached(monkeypatch, tmp_path):
    """The folder of downloads on a machine without data, for which the stand-ins are published."""
    published = {
        hospital: heart._fingerprint(heart._parse(STAND_INS[file]))
        for hospital, file in heart.FILES.items()
    }
    monkeypatch.setattr(heart, "SHA256", published)
    monkeypatch.delenv("WRI_DATA", raising=False)
    monkeypatch.setenv("WRI_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "heart"


def test_a_row_is_a_patient_with_missing_values_as_nan(cached):
    write(cached)
    frame = load_heart(no_network)
    assert [*frame.columns] == [*heart.COLUMNS[:-1], "disease", "hospital"]
    assert all(frame.dtypes.iloc[:13] == np.float64)
    assert frame["disease"].tolist() == [0, 1, 1, 1, 1, 0]
    assert frame["hospital"].tolist() == [
        *("Cleveland", "Cleveland", "Hungary", "Switzerland", "Long Beach", "Long Beach")
    ]
    nan = np.nan
    expected = {
        "trestbps": [145, 130, 130, 95, nan, 130],  # nobody's is 0
        "chol": [233, 204, 132, nan, 260, nan],
        "oldpeak": [2.3, 1.4, 0, -0.7, 3, 0],  # a zero here is a measurement
        "sex": [1, 0, 1, 1, 0, 1],
        "ca": [0, nan, nan, nan, nan, nan],  # by ? and by -9
        "thal": [6, 3, nan, nan, nan, nan],
    }
    for column, values in expected.items():
        np.testing.assert_array_equal(frame[column], values, column)


def test_what_a_caller_changes_is_not_what_the_next_one_gets(cached):
    write(cached)
    changed = load_heart(no_network)
    changed["age"] = 0.0
    assert load_heart(no_network)["age"].iloc[0] == 63


@pytest.mark.parametrize("below", [".", "heart"])
def test_the_given_folder_comes_before_the_cache(below, cached, tmp_path, monkeypatch):
    assert where_heart() is None
    write(cached, dict.fromkeys(STAND_INS, b"spoilt"))
    assert where_heart() == f"{cached} (downloaded earlier)"
    monkeypatch.setenv("WRI_DATA", str(tmp_path / "data"))
    assert "downloaded earlier" in where_heart()  # the folder does not have it
    write(tmp_path / "data" / below)
    assert where_heart() == f"{tmp_path / 'data' / below} (WRI_DATA)"
    assert len(load_heart(no_network)) == 6


def test_a_folder_without_one_of_the_files_does_not_count(cached):
    write(cached)
    (cached / "processed.va.data").unlink()
    assert where_heart() is None


def test_line_ends_and_ways_to_write_a_number_do_not_matter():
    plain = heart._fingerprint(heart._parse(b"28,1,2,130,?,0,2,185,0,.5,?,?,?,0\n" * 2))
    other = b"28.0,1,2,130,-9,0,2,185,0,0.50,-9.0,?, ?,0\r\n" * 2 + b"\r\n"
    assert heart._fingerprint(heart._parse(other)) == plain
    changed = other.replace(b"185", b"186", 1)
    assert heart._fingerprint(heart._parse(changed)) != plain


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (STAND_INS["processed.hungarian.data"].replace(b"28", b"29"), "1 rows have another SHA"),
        (STAND_INS["processed.hungarian.data"] * 2, "2 rows have another SHA"),
        (b"", "0 rows have another SHA"),
        (b"\n28,1,2,130", "cannot reshape array of size 4"),
        (b"28,1,2,130,132,0,2,high,0,0,?,?,?,1", "1 rows have another SHA"),
        (b"\x1f\x8b\xff", "ascii"),
    ],
)
def test_a_damaged_file_is_named_with_the_reason_and_the_remedy(content, words, cached):
    write(cached, STAND_INS | {"processed.hungarian.data": content})
    named = rf"{cached}/processed.hungarian.data \(downloaded earlier\) is not as published"
    with pytest.raises(InputError, match=f"{named}: .*{words}.*; remove it.* set WRI_DATA to"):
        load_heart(no_network)


def test_a_download_is_kept_and_read_the_next_time(cached):
    asked = []

    def fetch(address):
        asked.append(address)
        return STAND_INS[address.removeprefix(heart.UCI)].replace(b"\n", b"\r\n")

    fetched = load_heart(fetch)
    assert asked == [heart.UCI + name for name in STAND_INS]
    assert heart.UCI.startswith("https://")
    assert {path.name for path in cached.iterdir()} == set(STAND_INS)  # nothing half written
    assert load_heart(no_network).equals(fetched)


def test_a_wrong_download_is_refused_and_none_of_it_kept(cached):
    def fetch(address):
        return STAND_INS["processed.cleveland.data"]

    words = r"https://\S*/processed.hungarian.data could not be fetched as published \(its 2 rows"
    with pytest.raises(InputError, match=words):
        load_heart(fetch)
    assert not cached.exists()


def test_what_cannot_be_kept_is_given_all_the_same(cached, tmp_path, monkeypatch):
    write(tmp_path / "server")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WRI_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(heart, "UCI", (tmp_path / "server").as_uri() + "/")
    assert len(load_heart()) == 6  # with the standard library's urlopen
    assert where_heart() is None


def test_when_they_are_nowhere_the_error_says_where_and_what_to_do(cached, monkeypatch):
    with pytest.raises(InputError) as raised:
        load_heart(no_network)
    words = str(raised.value)
    for expected in ("WRI_DATA (not set)", str(cached), heart.UCI, "out of reach", "set WRI_DATA"):
        assert expected in words
    monkeypatch.setenv("WRI_DATA", "nowhere")
    with pytest.raises(InputError, match="WRI_DATA=nowhere"):
        load_heart(no_network)


@needs_heart
def test_the_real_one():
    frame = load_heart(no_network)
    groups = frame.groupby("hospital", sort=False)
    hospitals = ["Cleveland", "Hungary", "Switzerland", "Long Beach"]
    assert [*groups.size().items()] == [*zip(hospitals, (303, 294, 123, 200), strict=True)]
    assert groups["disease"].sum().tolist() == [139, 106, 115, 149]
    missing = frame.isna().groupby(frame["hospital"], sort=False).sum()
    some = missing.loc[:, missing.any()]
    assert {name: tuple(counts) for name, counts in some.items()} == {
        "trestbps": (0, 1, 2, 57),
        "chol": (0, 23, 123, 56),
        "fbs": (0, 8, 75, 7),
        "restecg": (0, 1, 1, 0),
        "thalach": (0, 1, 1, 53),
        "exang": (0, 1, 1, 53),
        "oldpeak": (0, 0, 6, 56),
        "slope": (0, 190, 17, 102),
        "ca": (4, 291, 118, 198),
        "thal": (2, 266, 52, 166),
    }

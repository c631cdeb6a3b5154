"""Heart disease in four hospitals: 920 patients, thirteen measurements, sick or healthy (UCI).

The four files are read from the first of these places that has all of them:

1. the folder `WRI_DATA`, or `heart/` in it;
2. the cache folder, with an earlier download;
3. UCI, over HTTPS; the download is kept in the cache folder.

The SHA-256 of the values must be that of the published files, whatever the place. One row per
patient: fourteen numbers between commas, the last one `num`, the stage of the disease.
"""

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wri.cache import cache_folder, write_bytes
from wri.datasets.download import (
    FAILURES,
    Fetch,
    Source,
    explain_failure,
    fetch_https,
    given_folders,
    given_words,
)
from wri.errors import InputError, MissingDataError

if TYPE_CHECKING:
    import pandas as pd


class HeartFile(NamedTuple):
    """One of the four files: hospital, name and SHA-256 of its values."""

    name: str
    file: str
    sha256: str


SHA256 = {
    "Cleveland": "2f29ee41a080be9f960c15d83255915d93c8f7f35dbe8f0d860acaa9ffc7c9b3",
    "Hungary": "3c4393aedd708282fdb4b094fe3fbdfade1061822d903ffabfc5c3a13e9c416e",
    "Switzerland": "7ea44a44b5432dc20cba351273f693a0b82d5acc862de42ae953a3271cf01b63",
    "Long Beach": "23c0be99a5070fb8fe5ab16de12b27eda89ec0fa849d2f478038bb007187575f",
}
HOSPITALS = (
    HeartFile("Cleveland", "processed.cleveland.data", SHA256["Cleveland"]),
    HeartFile("Hungary", "processed.hungarian.data", SHA256["Hungary"]),
    HeartFile("Switzerland", "processed.switzerland.data", SHA256["Switzerland"]),
    HeartFile("Long Beach", "processed.va.data", SHA256["Long Beach"]),
)
COLUMNS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak"),
    *("slope", "ca", "thal", "num"),
)
UNKNOWN, UNKNOWN_NUMBER = "?", -9.0  # two forms of a missing value
NEVER_ZERO = ["trestbps", "chol"]  # blood pressure and cholesterol
FOLDERS = (".", "heart")
UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/"
LICENCE = "Creative Commons Attribution 4.0"
REMEDY = f"set WRI_DATA to a folder with the four files processed.*.data of {UCI}"


def load_heart(fetch: Fetch = fetch_https) -> "pd.DataFrame":
    """Load the heart disease data of four hospitals: 920 patients.

    The order is Cleveland, Hungary, Switzerland, Long Beach. `?` and -9 are missing values, and so
    is a zero in a column where no living patient has one, a known property of these files: `chol`
    is 0 in all of Switzerland and 49 times in Long Beach, `trestbps` once in Long Beach.

    Parameters
    ----------
    fetch : callable, default=fetch_https
        Function from an address to its bytes, called if the files are not on this machine.

    Returns
    -------
    patients : DataFrame
        Columns age, sex, cp, trestbps, chol, fbs, restecg, thalach, exang, oldpeak, slope, ca and
        thal in float64, NaN where missing; `disease`, 1 for every stage above 0; `hospital`.

    Raises
    ------
    InputError
        If the files are not found, or differ from the published ones.

    References
    ----------
    A. Janosi, W. Steinbrunn, M. Pfisterer and R. Detrano, "Heart Disease", UCI Machine Learning
    Repository, 1989.

    Examples
    --------
    >>> from wri.datasets import load_heart
    >>> load_heart()["hospital"].value_counts().to_dict()  # doctest: +SKIP
    {'Cleveland': 303, 'Hungary': 294, 'Long Beach': 200, 'Switzerland': 123}
    """
    source = _find()
    if source is None:
        return _frame(_download(cache_folder() / "heart", fetch))
    return _frame([_read(source, hospital) for hospital in HOSPITALS])


def where_heart() -> str | None:
    """Return the place from which `load_heart` would read without a download.

    Returns
    -------
    place : str or None
        Folder and its origin; None if the data are not on this machine.

    Examples
    --------
    >>> from wri.datasets import where_heart
    >>> where_heart()  # doctest: +SKIP
    '/data/heart (WRI_DATA)'
    """
    source = _find()
    return None if source is None else str(source)


def _find() -> Source | None:
    """Find a folder with all four files."""
    places = [Source(folder, "WRI_DATA") for folder in given_folders(FOLDERS)]
    for source in (*places, Source(cache_folder() / "heart", "downloaded earlier")):
        if all((source.path / hospital.file).is_file() for hospital in HOSPITALS):
            return source
    return None


def _read(source: Source, hospital: HeartFile) -> np.ndarray:
    path = source.path / hospital.file
    try:
        return _checked(path.read_bytes(), hospital)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} ({source.origin}) is not as published: {error}; remove it or fetch it again. "
            f"{REMEDY}"
        ) from error


def _download(folder: Path, fetch: Fetch) -> list[np.ndarray]:
    contents, values = [], []
    for hospital in HOSPITALS:
        address = f"{UCI}{hospital.file}"
        try:
            contents.append(fetch(address))
            values.append(_checked(contents[-1], hospital))
        except (*FAILURES, ValueError) as error:
            raise MissingDataError(
                f"heart disease was not found: not all four files in {given_words()} or {folder}, "
                f"and UCI did not give {address} as published ({explain_failure(error)}). {REMEDY}"
            ) from error
    with suppress(OSError):  # if they cannot be kept, they are fetched again the next time
        for hospital, content in zip(HOSPITALS, contents, strict=True):
            write_bytes(folder / hospital.file, content)
    return values


def _checked(content: bytes, hospital: HeartFile) -> np.ndarray:
    values = _parse(content)
    if _fingerprint(values) != hospital.sha256:
        raise ValueError(f"its {len(values)} rows have another SHA-256")
    return values


def _parse(content: bytes) -> np.ndarray:  # [n, 14]
    """Return the numbers of a file, NaN where missing; rows are counted from 1."""
    lines = [line for line in content.decode("ascii").splitlines() if line.strip()]
    rows = [_parse_row(row, line.split(",")) for row, line in enumerate(lines, start=1)]
    return np.array(rows).reshape(-1, len(COLUMNS))


def _parse_row(row: int, cells: Sequence[str]) -> list[float]:
    if len(cells) != len(COLUMNS):
        raise ValueError(f"row {row} has {len(cells)} values, not {len(COLUMNS)}")
    numbers = []
    for column, cell in zip(COLUMNS, cells, strict=True):
        try:
            number = np.nan if cell.strip() == UNKNOWN else float(cell)
        except ValueError:
            raise ValueError(f"row {row}, {column} is {cell!r}, not a number or ?") from None
        numbers.append(np.nan if number == UNKNOWN_NUMBER else number)
    return numbers


def _fingerprint(values: np.ndarray) -> str:
    # hash of the values, not the bytes: copies differ in line ends, 1 or 1.0, ? or -9
    text = "\n".join(",".join(map(repr, row)) for row in values.tolist())
    return sha256(text.encode()).hexdigest()


def _frame(values: Sequence[np.ndarray]) -> "pd.DataFrame":
    import pandas as pd

    frame = pd.DataFrame(np.concatenate(values), columns=list(COLUMNS))
    frame[NEVER_ZERO] = frame[NEVER_ZERO].replace(0.0, np.nan)
    frame["disease"] = (frame.pop("num") > 0).astype("int64")
    frame["hospital"] = np.repeat([each.name for each in HOSPITALS], [len(each) for each in values])
    return frame

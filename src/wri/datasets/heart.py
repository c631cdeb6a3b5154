"""Heart disease in four hospitals: 920 patients, thirteen measurements, sick or healthy (UCI).

The four files are read from the first of these places that has all of them:

1. the folder `WRI_DATA`, or `heart/` in it;
2. the cache folder, with an earlier download;
3. UCI, over HTTPS; the download is kept in the cache folder.

The SHA-256 of the values must be that of the published files, whatever the place. One row per
patient: fourteen numbers between commas, the last one `num`, the stage of the disease.
"""

from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from wri.cache import (
    FAILURES,
    Fetch,
    Source,
    cache_folder,
    explain_failure,
    fetch_https,
    find_source,
    given_words,
    open_atomic,
)
from wri.errors import InputError, MissingDataError

if TYPE_CHECKING:
    import pandas as pd

FILES = {
    "Cleveland": "processed.cleveland.data",
    "Hungary": "processed.hungarian.data",
    "Switzerland": "processed.switzerland.data",
    "Long Beach": "processed.va.data",
}
SHA256 = {  # of the values
    "Cleveland": "2f29ee41a080be9f960c15d83255915d93c8f7f35dbe8f0d860acaa9ffc7c9b3",
    "Hungary": "3c4393aedd708282fdb4b094fe3fbdfade1061822d903ffabfc5c3a13e9c416e",
    "Switzerland": "7ea44a44b5432dc20cba351273f693a0b82d5acc862de42ae953a3271cf01b63",
    "Long Beach": "23c0be99a5070fb8fe5ab16de12b27eda89ec0fa849d2f478038bb007187575f",
}
COLUMNS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak"),
    *("slope", "ca", "thal", "num"),
)
UNKNOWN = -9.0  # a missing value, like ?
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
    return _frame({hospital: _read(source, hospital) for hospital in FILES})


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
    return source and str(source)


def _find() -> Source | None:
    """Find a folder with all four files."""
    kept = Source(cache_folder() / "heart", "downloaded earlier")
    return find_source(
        FOLDERS, [kept], lambda folder: all((folder / file).is_file() for file in FILES.values())
    )


def _read(source: Source, hospital: str) -> np.ndarray:
    path = source.path / FILES[hospital]
    try:
        return _parse_checked(path.read_bytes(), hospital)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} ({source.origin}) is not as published: {error}; remove it or fetch it again, "
            f"or {REMEDY}"
        ) from error


def _download(folder: Path, fetch: Fetch) -> dict[str, np.ndarray]:
    contents, values = {}, {}
    for hospital, file in FILES.items():
        try:
            contents[file] = fetch(f"{UCI}{file}")
            values[hospital] = _parse_checked(contents[file], hospital)
        except (*FAILURES, ValueError) as error:
            raise MissingDataError(
                f"the heart disease data were not found: neither {given_words()} nor {folder} has "
                f"all four files, and {UCI}{file} could not be fetched as published "
                f"({explain_failure(error)}); {REMEDY}"
            ) from error
    with suppress(OSError):  # if they cannot be kept, they are fetched again the next time
        for file, content in contents.items():
            with open_atomic(folder / file) as kept:
                kept.write(content)
    return values


def _parse_checked(content: bytes, hospital: str) -> np.ndarray:
    values = _parse(content)
    if _fingerprint(values) != SHA256[hospital]:
        raise ValueError(f"its {len(values)} rows have another SHA-256")
    return values


def _parse(content: bytes) -> np.ndarray:  # [n, 14]
    """Return the numbers of a file, NaN where there is none."""
    text = content.decode("ascii")
    values = np.genfromtxt(text.splitlines(), delimiter=",") if text.strip() else np.empty(0)
    values = values.reshape(-1, len(COLUMNS))
    return np.where(values == UNKNOWN, np.nan, values)


def _fingerprint(values: np.ndarray) -> str:
    # hash of the values, not the bytes: copies differ in line ends, 1 or 1.0, ? or -9
    text = "\n".join(",".join(map(repr, row)) for row in values.tolist())
    return sha256(text.encode()).hexdigest()


def _frame(values: dict[str, np.ndarray]) -> "pd.DataFrame":
    import pandas as pd

    frame = pd.DataFrame(np.concatenate([*values.values()]), columns=list(COLUMNS))
    frame[NEVER_ZERO] = frame[NEVER_ZERO].replace(0.0, np.nan)
    frame["disease"] = (frame.pop("num") > 0).astype("int64")
    frame["hospital"] = np.repeat([*values], [len(each) for each in values.values()])
    return frame

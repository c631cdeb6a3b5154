"""Kind of a column, found from its cells.

In this order, without missing cells:

    constant   all cells are equal, or all are missing
    yes/no     booleans, or only yes and no, true and false, 1 and 0, …
    date       dates and times, as such or as texts
    id         whole numbers that count rows, or mostly different ones with a name such as
               `patient_id`; short texts that are mostly different
    number     numbers, or texts of numbers
    mixed      mostly different numbers with other texts among them, such as "< 5"
    text       mostly different texts with several words
    category   all other texts

Numbers may be codes, such as `icd_code`: few different whole numbers, in a column with such a name,
or with as many digits each and large, uneven steps between them. They are read as numbers, with a
hint.
"""

import re
from typing import Any

import numpy as np
import pandas as pd

from wri.datasets.columns import YES_NO, Column, DistinctCells, Kind, as_category, as_number

DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))([T ]\d{1,2}:\d{2}.*)?"
    r"|\d{1,2}:\d{2}(:\d{2})?"
)
ID_NAME = re.compile(
    r"(?i:(^|[_ .-])(id|ids|uuid|guid|mrn|key|index|nr|rowid|row)$|^unnamed: )|[a-z]I[Dd]$"
)
CODE_NAME = re.compile(
    r"(?i:(^|[_ .-])(codes?|icd(9|10)?|cpt|drg|atc|zip|zipcode|postcode|plz|type|class|category|"
    r"group|ward|department|region|country|state)([_ .-]?(nr|no|id))?$)|[a-z](Code|Type)$"
)
MOST_CODES = 50  # different numbers above which a column is not taken for codes
FEWEST_CODES = 3
CODE_ROWS = 5  # rows per different number, at least
SPARSE = 0.3  # share of the whole numbers in their range below which values look like codes
FEW = 20  # rows below which different cells do not make a column an id
MOSTLY = 0.5  # share of different cells above which texts are not categories
OFTEN = 0.2  # the same for numbers in a column named like an id
WORDS = 3  # mean number of words from which mostly different texts are free text


def find_column(cells: pd.Series, name: str, kind: Kind | None = None) -> Column:
    """Find the kind of a column of raw cells, unless somebody has said it."""
    if kind in (None, "number") and _is_measured(cells):
        return Column(name, "number", int(cells.isna().sum()))
    distinct = DistinctCells(cells)
    values = [value for value in distinct.values if value is not None]
    found = kind is None
    kind = kind or find_kind(cells, name, values, distinct.n_missing)
    names = sorted({as_category(value) for value in values}) if kind == "category" else []
    n = len(cells) - distinct.n_missing
    codes = found and kind == "number" and look_like_codes(name, values, n)
    return Column(name, kind, distinct.n_missing, tuple(names), codes=codes)


def _is_measured(cells: pd.Series) -> bool:
    """Return whether a column clearly holds numbers, some with fractions; a quick check."""
    if cells.dtype.kind != "f":
        return False
    numbers = cells.to_numpy()[cells.notna().to_numpy()]
    fractions = len(numbers) > 0 and (np.floor(numbers) != numbers).any()  # infinity has none
    return bool(fractions and numbers.min() < numbers.max())


def find_kind(cells: pd.Series, name: str, values: list[Any], missing: int) -> Kind:
    """Return the kind of a column with these different values."""
    n = len(cells) - missing
    if len(values) <= 1 and (missing == 0 or not values):
        return "constant"
    texts = {str(value).casefold() for value in values}
    if texts <= set(YES_NO) and len(texts) > 1:
        return "yes/no"
    if cells.dtype.kind in "mM" or all(_is_date(value) for value in values):
        return "date"
    numbers = _numbers(values)
    if numbers is not None:
        return "id" if _counts_rows(numbers, n, name) else "number"
    if len(values) > FEW and _share_of_numbers(values) > MOSTLY:
        return "mixed"
    if len(values) > FEW and len(values) > MOSTLY * n:
        words = np.mean([len(str(value).split()) for value in values])
        return "text" if words >= WORDS else "id"
    return "category"


def _is_date(value: Any) -> bool:
    if isinstance(value, str):
        return DATE.fullmatch(value) is not None
    return hasattr(value, "isoformat")  # of the datetime module and of pandas


def _numbers(values: list[Any]) -> np.ndarray | None:
    try:
        return np.array([as_number(value) for value in values])
    except (ValueError, TypeError):
        return None


def _share_of_numbers(values: list[Any]) -> float:
    """Return the share of different cells that are numbers."""
    return float(np.mean([_numbers([value]) is not None for value in values]))


def _counts_rows(numbers: np.ndarray, n: int, name: str) -> bool:
    """Return whether whole numbers name rows: 1, 2, 3, …, or many in a column named like an id."""
    if len(numbers) <= FEW or not np.isfinite(numbers).all() or (numbers % 1).any():
        return False
    counted = len(numbers) == n and bool((np.diff(numbers) == 1).all())
    return counted or (ID_NAME.search(name.strip()) is not None and len(numbers) > OFTEN * n)


def look_like_codes(name: str, values: list[Any], n: int) -> bool:
    """Return whether few different whole numbers in n rows are named or spread like codes."""
    numbers = _numbers(values)
    few = FEWEST_CODES <= len(values) <= MOST_CODES and CODE_ROWS * len(values) <= n
    if not few or numbers is None or not np.isfinite(numbers).all() or (numbers % 1).any():
        return False
    if CODE_NAME.search(name.strip()) is not None:
        return True
    if any(isinstance(value, str) and re.match("0[0-9]", value) for value in values):
        return True
    low, high = int(numbers.min()), int(numbers.max())
    long = low >= 100 and len(str(low)) == len(str(high))
    steps = np.diff(np.sort(numbers))
    uneven = len(np.unique(steps)) > 1 and np.gcd.reduce(numbers.astype(int)) < 5
    return bool(long and uneven and len(values) < SPARSE * (high - low + 1))

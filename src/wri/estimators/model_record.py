"""Entries of a saved model's record: digest, types, labels and held-out rows."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from wri.estimators.model_folder import require
from wri.ood.evidence import HeldOutRows
from wri.ood.expected_loss import LeftOutSites
from wri.ood.ranges import ColumnRanges

Types = tuple[type, ...]
LABELS = {"dtype": (str,), "values": (list,)}
LARGEST_ARRAYS = 64 << 20  # bytes of all arrays of a record
MOST_TRANSFORMERS = 300
MOST_COLUMNS = 1 << 18  # of all transformers together
MOST_CELLS = 1 << 21  # of the made-up rows of all encoders
LABEL_TYPE = re.compile(r"\|b1|\|O|\|[iu]1|[<>][iuf][248]|[<>]U[1-9]\d{0,3}")


def record_digest(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record without its digest, whatever the layout of the file."""
    others = {name: value for name, value in record.items() if name != "digest"}
    text = json.dumps(others, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def check_sizes(record: Any) -> None:
    """Refuse arrays and transformers that are too large in total, before any of them is made."""
    size = columns = transformers = cells = 0
    waiting = [record]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
            counts = (value.get(name) for name in ("n_features", "width"))
            columns += sum(max(count, 0) for count in counts if type(count) is int)
            transformers += "class" in value
            cells += _count_cells(value.get("categories"))
            kind, values = value.get("array", value.get("dtype")), value.get("values")
            if isinstance(kind, str) and LABEL_TYPE.fullmatch(kind) and isinstance(values, list):
                size += np.dtype(kind).itemsize * len(values)
    require(size <= LARGEST_ARRAYS, f"its arrays would take {size:,} bytes")
    require(transformers <= MOST_TRANSFORMERS, f"it has {transformers:,} transformers")
    require(columns <= MOST_COLUMNS, f"its transformers have {columns:,} columns")
    require(cells <= MOST_CELLS, f"its categories take {cells:,} cells to read")


def _count_cells(categories: Any) -> int:
    """Return the cells of the rows that an encoder is fitted to: each category comes twice."""
    columns = categories if isinstance(categories, list) else []
    lists = [each.get("values") for each in columns if isinstance(each, dict)]
    longest = max((len(values) for values in lists if isinstance(values, list)), default=0)
    return 2 * longest * len(columns)


def as_json(value: Any) -> Any:
    """Return the value as JSON has it; raise TypeError or ValueError if JSON has no form for it."""
    return json.loads(json.dumps(value, allow_nan=False, default=np.generic.item))


def check_names(found: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse names that are missing or unknown."""
    odd = ", ".join(sorted(set(found) ^ set(known)))
    require(not odd, f"{what} missing or unknown: {odd:.200}")


def check_entries(entries: Mapping[str, Any], known: Mapping[str, Types], what: str) -> None:
    """Refuse entries with missing or unknown names or values of the wrong type."""
    check_names(entries, known, f"{what} has entries")
    for name, types in known.items():
        require(type(entries[name]) in types, f"{name} has the wrong type: {entries[name]!r:.40}")


def encode_labels(labels: np.ndarray, what: str) -> dict[str, Any]:
    """Encode labels of environments or classes for JSON."""
    try:
        return {"dtype": labels.dtype.str, "values": as_json(labels.tolist())}
    except TypeError:
        kind = type(labels.tolist()[0]).__name__
        raise ValueError(
            f"labels must be strings, numbers or booleans, not {kind}; fit with {what} as strings"
        ) from None


def decode_labels(labels: Mapping[str, Any], what: str, fewest: int) -> np.ndarray:
    """Decode labels of environments or classes; check their type and size."""
    check_entries(labels, LABELS, what)
    values, dtype = labels["values"], labels["dtype"]
    if LABEL_TYPE.fullmatch(dtype) and {*map(type, values)} <= {str, int, float, bool}:
        array = np.array(values, dtype)
        same = array.tolist() == values and [*map(type, array.tolist())] == [*map(type, values)]
        if same and len(set(values)) == len(values) >= fewest:
            return array
    raise ValueError(f"{what} must be {fewest} or more different strings, numbers or booleans")


def decode_known(array: np.ndarray, environments: int, classes: bool) -> HeldOutRows:
    """Decode the held-out rows; check that their values are possible."""
    predictions, (losses, environment, shares) = array[:, :-3], array[:, -3:].T
    number = environment.astype(int)
    possible = (
        (number == environment).all()
        and ((number >= 0) & (number < environments)).all()
        and (losses >= 0).all()
        and (shares > 0).all()
        and (len(array) == 0 or abs(shares.sum() - 1) < 1e-6)
    )
    if classes:
        possible = possible and ((predictions >= 0) & (predictions <= 1)).all()
    require(bool(possible), "known holds impossible values")
    return HeldOutRows(predictions, losses, number, shares)


def decode_left_out(array: np.ndarray | None) -> LeftOutSites | None:  # [2, E]
    """Decode the losses of left-out environments; check that their values are possible."""
    if array is None:
        return None
    require(array.shape[1] > 2 and bool((array >= 0).all()), "left_out holds impossible values")
    return LeftOutSites(*array)


def decode_ranges(array: np.ndarray) -> ColumnRanges:  # [2, D]
    """Decode the ranges of the columns."""
    low, high = array
    require(bool((low <= high).all()), "ranges must have low <= high")
    return ColumnRanges(low, high)

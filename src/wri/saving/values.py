"""Checked values of a saved model's record: digest, sizes, types, labels, packed values.

JSON's own values are written as they are. What JSON lacks is packed as an object with one key:

    {"float": "nan"}                              NaN and infinities
    {"array": "<f8", "shape": [2], "values": […]} an array of numbers, texts or booleans
    {"tuple": […]}, {"dict": {…}}                 a tuple, a dict with texts as keys
    {"type": "float64"}                           a type of NumPy's numbers

Numbers are read back to the last bit: JSON writes the shortest decimal that reads as the same
double. Values are checked when they are read; their sizes are checked before, in total.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from wri.saving.folder import require

Types = tuple[type, ...]
LARGEST_ARRAYS = 64 << 20  # bytes of all arrays of a record
MOST_TRANSFORMERS = 300
MOST_COLUMNS = 1 << 18  # of all transformers together
MOST_CELLS = 1 << 21  # of the made-up rows of all encoders
ARRAY_TYPE = re.compile(r"\|b1|\|O|\|[iu]1|[<>][iuf][248]|[<>]U[1-9]\d{0,3}")
LABEL = str | bool | int | float | np.number | np.bool_
NUMBER_TYPES = ("float64", "float32", "int64", "int32", "int16", "int8", "bool")


def record_digest(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record without its digest, whatever the layout of the file."""
    others = {name: value for name, value in record.items() if name != "digest"}
    text = json.dumps(others, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def as_json(value: Any) -> Any:
    """Return the value as JSON has it; raise TypeError or ValueError if JSON has no form for it."""
    return json.loads(json.dumps(value, allow_nan=False, default=np.generic.item))


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
            if isinstance(kind, str) and ARRAY_TYPE.fullmatch(kind) and isinstance(values, list):
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


def check_names(found: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse names that are missing or unknown."""
    odd = ", ".join(sorted(set(found) ^ set(known)))
    require(not odd, f"{what} missing or unknown: {odd:.200}")


def check_entries(entries: Mapping[str, Any], known: Mapping[str, Types], what: str) -> None:
    """Refuse entries with missing or unknown names or values of the wrong type."""
    check_names(entries, known, f"{what} has entries")
    for name, types in known.items():
        require(type(entries[name]) in types, f"{name} has the wrong type: {entries[name]!r:.40}")


def decode_names(names: Any, count: int) -> np.ndarray:
    """Decode the names of columns; check their type and number."""
    texts = isinstance(names, list) and {*map(type, names)} == {str} and len(names) == count
    require(texts, f"feature_names must be {count} names")
    return np.array(names, dtype=object)


def encode_labels(labels: np.ndarray, what: str) -> dict[str, Any]:
    """Encode labels of environments or classes for JSON."""
    kinds = {type(each) for each in labels if not isinstance(each, LABEL)}
    require(
        not kinds,
        f"labels must be strings, numbers or booleans, not {', '.join(k.__name__ for k in kinds)}; "
        f"fit with {what} as strings",
    )
    return {"dtype": labels.dtype.str, "values": as_json(labels.tolist())}


def decode_labels(labels: Mapping[str, Any], what: str, fewest: int) -> np.ndarray:
    """Decode labels of environments or classes; check their type and size."""
    check_entries(labels, {"dtype": (str,), "values": (list,)}, what)
    values = labels["values"]
    wrong = f"{what} must be {fewest} or more different strings, numbers or booleans"
    require({*map(type, values)} <= {str, int, float, bool}, wrong)
    require(len(set(values)) == len(values) >= fewest, wrong)
    try:
        return unpack({"array": labels["dtype"], "shape": [len(values)], "values": values})
    except ValueError as error:
        raise ValueError(wrong) from error


def pack(value: Any) -> Any:
    """Convert a value for JSON; a TypeError names a type without a form."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, list | pd.Index):
        return [pack(each) for each in value]
    if isinstance(value, tuple):
        return {"tuple": pack(list(value))}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: pack(each) for key, each in value.items()}}
    if isinstance(value, np.ndarray):
        flat = pack(value.ravel().tolist())
        return {"array": value.dtype.str, "shape": list(value.shape), "values": flat}
    name = value.name if isinstance(value, np.dtype) else getattr(value, "__name__", "")
    if isinstance(value, type | np.dtype) and name in NUMBER_TYPES:
        return {"type": name}
    raise TypeError(f"{type(value).__name__} has no JSON form")


def unpack(packed: Any) -> Any:
    """Convert a value of `pack` back; raise a ValueError for anything else."""
    if isinstance(packed, list):
        return [unpack(each) for each in packed]
    if not isinstance(packed, dict):
        require(not isinstance(packed, float) or math.isfinite(packed), "a number is not finite")
        return packed
    if set(packed) == {"array", "shape", "values"}:
        return _unpack_array(packed)
    require(len(packed) == 1, f"{packed!r:.40} is no packed value")
    ((form, content),) = packed.items()
    if form == "float" and content in ("nan", "inf", "-inf"):
        return float(content)
    if form == "type" and content in NUMBER_TYPES:
        return np.dtype(content).type
    if form == "tuple" and isinstance(content, list):
        return tuple(unpack(content))
    if form == "dict" and isinstance(content, dict):
        return {key: unpack(each) for key, each in content.items()}
    raise ValueError(f"{packed!r:.40} is no packed value")


def _unpack_array(packed: Mapping[str, Any]) -> np.ndarray:
    """Convert an array back; it must give the same packed value again."""
    dtype, values = packed["array"], packed["values"]
    known = isinstance(dtype, str) and ARRAY_TYPE.fullmatch(dtype) and isinstance(values, list)
    require(bool(known), "an array has an unknown type")
    array = np.empty(len(values), dtype)
    array[:] = unpack(values)
    array = array.reshape(packed["shape"])
    require(pack(array) == packed, "an array holds values of another type")
    return array

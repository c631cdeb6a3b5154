"""Parameters and learned values of transformers as JSON.

JSON's own values are written as they are. What JSON lacks is an object with one key:

    {"float": "nan"}                              NaN and infinities
    {"array": "<f8", "shape": [2], "values": […]} an array of numbers, texts or booleans
    {"tuple": […]}, {"slice": [0, 2, null]}       a tuple, a slice
    {"type": "float64"}                           a type of NumPy's numbers
    {"missing": "NA"}                             pandas' NA

Numbers are read back to the last bit: JSON writes the shortest decimal that reads as the same
double. Values are checked when they are read; their sizes are checked before, in total
(`model_record.check_sizes`).
"""

import math
from typing import Any

import numpy as np
import pandas as pd

from wri.estimators.model_folder import require
from wri.estimators.model_record import LABEL_TYPE

SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
NUMBER_TYPES = ("float64", "float32", "int64", "int32", "int16", "int8", "bool")


def pack(value: Any) -> Any:
    """Convert a value for JSON; a TypeError names a type without a form."""
    if value is pd.NA:
        return {"missing": "NA"}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, list):
        return [pack(each) for each in value]
    if isinstance(value, tuple):
        return {"tuple": [pack(each) for each in value]}
    if isinstance(value, slice):
        return {"slice": [pack(part) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: pack(each) for key, each in value.items()}}
    if isinstance(value, pd.Index):
        return pack(value.tolist())
    if isinstance(value, np.ndarray):
        flat = [pack(each) for each in value.ravel().tolist()]
        return {"array": value.dtype.str, "shape": list(value.shape), "values": flat}
    if isinstance(value, type) and value.__name__ in NUMBER_TYPES:
        return {"type": value.__name__}
    if isinstance(value, np.dtype) and value.name in NUMBER_TYPES:
        return {"type": value.name}
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
    if form == "float" and content in SPECIAL:
        return SPECIAL[content]
    if form == "missing" and content == "NA":
        return pd.NA
    if form == "type" and content in NUMBER_TYPES:
        return np.dtype(content).type
    if form == "tuple" and isinstance(content, list):
        return tuple(unpack(content))
    if form == "slice" and isinstance(content, list) and len(content) == 3:
        return slice(*unpack(content))
    if form == "dict" and isinstance(content, dict):
        return {key: unpack(each) for key, each in content.items()}
    raise ValueError(f"{packed!r:.40} is no packed value")


def _unpack_array(packed: dict[str, Any]) -> np.ndarray:
    """Convert an array back; check its type, shape and size."""
    dtype, shape, values = packed["array"], packed["shape"], packed["values"]
    plain = isinstance(dtype, str) and isinstance(shape, list) and isinstance(values, list)
    require(plain and LABEL_TYPE.fullmatch(dtype) is not None, "an array has an unknown type")
    counts = all(type(length) is int and length >= 0 for length in shape)
    require(counts and math.prod(shape) == len(values), "an array has another shape than values")
    cells = [unpack(value) for value in values]
    require(not any(isinstance(cell, list | dict | tuple) for cell in cells), "an array is nested")
    array = np.empty(len(cells), dtype)
    array[:] = cells
    same = all(_same(a, b) for a, b in zip(array.tolist(), cells, strict=True))
    require(same, "an array holds values of another type")
    return array.reshape(shape)


def _same(one: Any, other: Any) -> bool:
    """Return whether two cells are equal and of the same type; NaN equals NaN."""
    if one is other:
        return True
    missing = isinstance(one, float) and isinstance(other, float) and one != one and other != other
    return missing or (type(one) is type(other) and bool(one == other))

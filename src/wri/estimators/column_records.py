"""JSON records of a fitted `ColumnTransformer`, and helpers for the records of all transformers."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer

from wri.estimators.model_folder import require
from wri.estimators.model_record import check_names
from wri.estimators.packed_values import NUMBER_TYPES, pack, unpack

WORDS = ("passthrough", "drop")
ENTRIES = (
    *("class", "parameters", "output", "parts", "remainder", "sparse"),
    *("n_features", "feature_names"),
)
Encode = Callable[[Any, str, bool], Any]


def construct(kind: type, packed: Any, output: Any) -> Any:
    """Make a transformer from its packed parameters; check them."""
    require(isinstance(packed, dict), f"parameters of {kind.__name__} must be an object")
    parameters = {key: unpack(value) for key, value in packed.items()}
    transformer = kind(**parameters)
    if hasattr(transformer, "_validate_params"):
        transformer._validate_params()
    dtype = parameters.get("dtype", float)  # which scikit-learn does not check
    number = isinstance(dtype, type | str) and np.dtype(dtype).name in NUMBER_TYPES
    require(number, f"dtype {dtype!r:.40} is unknown")
    return set_output(transformer, output)


def set_output(transformer: Any, output: Any) -> Any:
    """Return the transformer with a setting of `set_output`."""
    require(output in (None, "default", "pandas"), f"output {output!r:.40} is unknown")
    return transformer if output is None else transformer.set_output(transform=output)


def output(transformer: Any) -> str | None:
    """Return the setting of `set_output`, if there is one."""
    return getattr(transformer, "_sklearn_output_config", {}).get("transform")


def check_width(n: Any, names: Any) -> None:
    """Check the number of columns and their names."""
    require(type(n) is int and n > 0, f"{n!r:.40} columns are impossible")
    if names is not None:
        texts = isinstance(names, list) and {*map(type, names)} == {str} and len(names) == n
        require(texts, f"feature_names must be {n} names")


def set_names(transformer: Any, names: list[str] | None) -> None:
    """Set or remove the names of the columns."""
    if names is not None:
        transformer.feature_names_in_ = np.array(names, dtype=object)
    elif "feature_names_in_" in vars(transformer):
        del transformer.feature_names_in_


class _PlaceholderTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transformer with a given number of output columns, in place of a real one."""

    def __init__(self, width: int) -> None:
        self.width = width

    def fit(self, X: Any, y: Any = None) -> "_PlaceholderTransformer":
        self.fitted_ = True
        return self

    def transform(self, X: Any) -> np.ndarray:
        return np.zeros((len(X), self.width))


PART_PARAMETERS = (
    "sparse_threshold",
    "transformer_weights",
    "verbose",
    "verbose_feature_names_out",
)
UNREAD = "n_jobs"  # a record must not start processes


def write_parts(columns: ColumnTransformer, where: str, encode: Encode) -> dict[str, Any]:
    """Write a fitted `ColumnTransformer`; its parts are written by `encode`."""
    given = {name: transformer for name, transformer, _ in columns.transformers}
    given["remainder"] = columns.remainder
    parts = []
    for name, transformer, chosen in columns.transformers_:
        word = given[name] if isinstance(given[name], str) else None
        place = columns.output_indices_[name]
        width = place.stop - place.start
        empty = hasattr(chosen, "__len__") and len(chosen) == 0
        record = word or encode(transformer, f"{where}.{name}", not empty)
        parts.append({"name": name, "is": record, "columns": pack(chosen), "width": width})
    names = getattr(columns, "feature_names_in_", None)
    return {
        "parameters": {key: pack(getattr(columns, key)) for key in PART_PARAMETERS},
        "output": output(columns),
        "parts": parts,
        "remainder": given["remainder"] if isinstance(given["remainder"], str) else None,
        "sparse": bool(columns.sparse_output_),
        "n_features": int(columns.n_features_in_),
        "feature_names": None if names is None else names.tolist(),
    }


def read_parts(record: Mapping[str, Any], decode: Callable[[Any], Any]) -> ColumnTransformer:
    """Read the `ColumnTransformer` of a record; its parts are read by `decode`.

    It is fitted to two rows of zeros with placeholders for its parts, so that it learns which
    columns go where; then the parts replace the placeholders.
    """
    check_names(record, ENTRIES, "ColumnTransformer has entries")
    given = {key: value for key, value in record["parameters"].items() if key != UNREAD}
    check_names(given, PART_PARAMETERS, "ColumnTransformer has parameters")
    n, names = record["n_features"], record["feature_names"]
    check_width(n, names)
    require(type(record["sparse"]) is bool, "sparse must be true or false")
    parts = [_read_part(part, decode) for part in record["parts"]]
    fitted = {name: transformer for name, transformer, _, _ in parts}
    require(len(fitted) == len(parts), "two parts have one name")
    rest = fitted.get("remainder", record["remainder"])
    require(record["remainder"] in (None, *WORDS) and rest is not None, "the remainder is invalid")
    others = [part for part in parts if part[0] != "remainder"]
    stands = {
        name: each if isinstance(each, str) else _PlaceholderTransformer(width)
        for name, each, _, width in parts
    }
    made = construct(
        ColumnTransformer,
        {"transformers": [], **given},
        None,
    )
    verbose, made.verbose = made.verbose, False
    made.transformers = [(name, stands[name], chosen) for name, _, chosen, _ in others]
    made.remainder = stands.get("remainder", rest)
    widths = {name: width for name, _, _, width in parts}
    for name, part in fitted.items():
        if widths[name] and not isinstance(part, str):
            real = len(part.get_feature_names_out())
            require(real == widths[name], f"part {name!r:.40} has another number of columns")
    rows = np.zeros((2, n))
    made.fit(rows if names is None else pd.DataFrame(rows, columns=names))
    made.verbose = verbose
    plain = {name: each if isinstance(each, str) else clone(each) for name, each in fitted.items()}
    made.transformers = [(name, plain[name], chosen) for name, _, chosen, _ in others]
    made.remainder = plain.get("remainder", rest)
    made.transformers_ = [
        (name, each if isinstance(stands.get(name, ""), str) else fitted[name], chosen)
        for name, each, chosen in made.transformers_
    ]
    made.sparse_output_ = record["sparse"]
    return set_output(made, record["output"])


def _read_part(part: Any, decode: Callable[[Any], Any]) -> tuple[str, Any, Any, int]:
    """Read one part: name, transformer, columns and width."""
    require(isinstance(part, dict), "a part of ColumnTransformer is not an object")
    check_names(part, ("name", "is", "columns", "width"), "a part of ColumnTransformer has entries")
    name, width = part["name"], part["width"]
    require(isinstance(name, str) and type(width) is int, "a part of ColumnTransformer is invalid")
    require(width >= 0, f"a part of {width:,} columns is impossible")
    return name, decode(part["is"]), unpack(part["columns"]), width

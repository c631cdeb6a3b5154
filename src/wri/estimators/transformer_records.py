"""JSON records of fitted scikit-learn transformers of known classes.

A record names the class, its parameters, and what was learned in public terms: means, medians,
categories, which of them are rare, which columns go where. No private state of scikit-learn is
written. If a transformer needs private state, it is fitted to a few made-up rows that lead to the
learned values; these are then set and compared. So another version of scikit-learn can read a
model, and a record cannot name anything that would be run.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, RobustScaler, StandardScaler

from wri.errors import InputError
from wri.estimators.column_records import (
    WORDS,
    check_width,
    construct,
    output,
    read_parts,
    set_names,
    write_parts,
)
from wri.estimators.columns import READ, ColumnReader
from wri.estimators.model_folder import require
from wri.estimators.model_record import check_names
from wri.estimators.packed_values import pack, unpack

Learned = dict[str, Any]


class TransformerFormat(NamedTuple):
    """Functions that write and read a class of transformers."""

    kind: type
    write: Callable[[Any], Learned]
    read: Callable[[Any, Learned], None]


def encode_transformer(transformer: Any, where: str, fitted: bool = True) -> Any:
    """Encode a transformer for JSON.

    Parameters
    ----------
    transformer : transformer or str
        Fitted transformer, "passthrough" or "drop".
    where : str
        Path of its names, for errors.
    fitted : bool, default=True
        Whether it has learned something; a part without columns has not.
    """
    if transformer is None or isinstance(transformer, str):
        return "passthrough" if transformer is None else transformer
    kind: type = type(transformer)
    name = kind.__name__
    if name not in FORMS or FORMS[name].kind is not kind:
        raise InputError(
            f"step {where!r} is {name}, which cannot be saved without code; transformers that can "
            f"be saved are {', '.join(FORMS)}. Use these, or apply {name} before the pipeline"
        )
    try:
        if name == "ColumnTransformer":
            return {"class": name, **write_parts(transformer, where, encode_transformer)}
        if name == "Pipeline":
            return {"class": name, "steps": encode_steps(transformer.steps, f"{where}.", fitted)}
        parameters = transformer.get_params(deep=False)
        return {
            "class": name,
            "parameters": {key: pack(value) for key, value in parameters.items()},
            "output": output(transformer),
            "learned": _learned(name, transformer) if fitted else None,
        }
    except TypeError as error:
        raise InputError(f"step {where!r} ({name}): {error}; give it plain values") from error


def decode_transformer(record: Any) -> Any:
    """Decode the transformer of a record; raise a ValueError if the record is invalid."""
    if isinstance(record, str):
        require(record in WORDS, f"{record!r:.40} is not a transformer")
        return record
    name = str(record.get("class")) if isinstance(record, dict) else ""
    require(name in FORMS, f"transformer {name!r:.40} is unknown")
    if name == "ColumnTransformer":
        return read_parts(record, decode_transformer)
    if name == "Pipeline":
        check_names(record, ("class", "steps"), "Pipeline has entries")
        return Pipeline(decode_steps(record["steps"]))
    check_names(record, ("class", "parameters", "output", "learned"), f"{name} has entries")
    transformer = construct(FORMS[name].kind, record["parameters"], record["output"])
    if record["learned"] is None:
        return transformer
    require(isinstance(record["learned"], dict), f"learned values of {name} are invalid")
    learned = {key: unpack(value) for key, value in record["learned"].items()}
    n, names = learned.pop("n_features", None), learned.pop("feature_names", None)
    check_width(n, names)
    transformer.n_features_in_ = n
    try:
        FORMS[name].read(transformer, learned)
    except (LookupError, AttributeError) as error:
        raise ValueError(f"learned values of {name} are invalid ({error!r:.80})") from error
    transformer.n_features_in_ = n
    set_names(transformer, names)
    return transformer


def encode_steps(steps: Sequence[tuple[str, Any]], where: str = "", fitted: bool = True) -> Any:
    """Encode named transformers for JSON; an InputError names one that cannot be saved."""
    return [
        {"name": name, "is": encode_transformer(step, f"{where}{name}", fitted)}
        for name, step in steps
    ]


def decode_steps(records: Any) -> list[tuple[str, Any]]:
    """Decode named transformers; raise a ValueError if the record is invalid."""
    require(isinstance(records, list) and len(records) > 0, "steps must be a list")
    steps = []
    for record in records:
        require(isinstance(record, dict), "a step is not an object")
        check_names(record, ("name", "is"), "a step has entries")
        require(isinstance(record["name"], str), "a step has no name")
        steps.append((record["name"], decode_transformer(record["is"])))
    require(len(dict(steps)) == len(steps), "two steps have one name")
    return steps


def _learned(name: str, transformer: Any) -> Learned:
    """Return what a transformer has learned, for JSON."""
    names = getattr(transformer, "feature_names_in_", None)
    found = {
        "n_features": int(transformer.n_features_in_),
        "feature_names": None if names is None else names.tolist(),
        **FORMS[name].write(transformer),
    }
    return {key: pack(value) for key, value in found.items()}


def _attributes(*names: str) -> tuple[Callable[[Any], Learned], Callable[[Any, Learned], None]]:
    """Make the functions that write and read transformers with public attributes only."""

    def write(transformer: Any) -> Learned:
        return {name: getattr(transformer, name) for name in names}

    def read(transformer: Any, learned: Learned) -> None:
        check_names(learned, names, "learned")
        for name, value in learned.items():
            if name == "n_samples_seen_":
                require(type(value) in (int, float), f"{name} is not a number")
            elif _is_unused(transformer, name):
                require(value is None, f"{name} is not used")
            else:
                require(isinstance(value, np.ndarray), f"{name} is not an array")
                numbers = value.dtype.kind in "iuf" and value.shape == (transformer.n_features_in_,)
                require(numbers, f"{name} is not a number per column")
            setattr(transformer, name, value)

    return write, read


def _is_unused(scaler: Any, name: str) -> bool:
    """Return whether a scaler learns no such numbers with its parameters."""
    if isinstance(scaler, StandardScaler):
        return not scaler.with_std and (name != "mean_" or not scaler.with_mean)
    centre = name == "center_"
    return isinstance(scaler, RobustScaler) and not (
        scaler.with_centering if centre else scaler.with_scaling
    )


def _write_imputer(imputer: SimpleImputer) -> Learned:
    indicator = imputer.indicator_
    dtype = getattr(imputer, "_fill_dtype", imputer.statistics_.dtype)
    return {
        "statistics": imputer.statistics_,
        "indicated": None if indicator is None else indicator.features_.tolist(),
        "numbers": dtype.kind != "O",
    }


def _read_imputer(imputer: SimpleImputer, learned: Learned) -> None:
    statistics, indicated, numbers = (
        learned["statistics"],
        learned["indicated"],
        learned["numbers"],
    )
    n, missing = imputer.n_features_in_, imputer.missing_values
    numbers_given = isinstance(statistics, np.ndarray) and statistics.shape == (n,)
    require(numbers_given, "statistics are invalid")
    require((indicated is None) is not imputer.add_indicator, "the indicator is invalid")
    rows = np.full((2, n), 0.0 if numbers else "a", float if numbers else object)
    if missing == 0:
        rows += 1
    for column in indicated or []:
        require(type(column) is int and 0 <= column < n, f"column {column!r:.40} is impossible")
        rows[1, column] = missing
    imputer.fit(rows)
    found = None if indicated is None else imputer.indicator_.features_.tolist()
    require(found == indicated, "the indicator is invalid")
    imputer.statistics_ = statistics


def _write_encoder(encoder: Any) -> Learned:
    rare = (
        encoder.infrequent_categories_
        if _merges_rare_categories(encoder)
        else [None] * encoder.n_features_in_
    )
    return {
        "categories": list(encoder.categories_),
        "rare": [
            None if few is None else np.flatnonzero(pd.Series(every).isin(few)).tolist()
            for every, few in zip(encoder.categories_, rare, strict=True)
        ],
    }


def _merges_rare_categories(encoder: Any) -> bool:
    """Return whether an encoder merges rare categories."""
    return encoder.min_frequency is not None or encoder.max_categories is not None


def _read_encoder(encoder: Any, learned: Learned) -> None:
    categories, rare = learned["categories"], learned["rare"]
    n = encoder.n_features_in_
    require(isinstance(categories, list) and len(categories) == n, "categories are invalid")
    require(isinstance(rare, list) and len(rare) == n, "rare categories are invalid")
    given = encoder.get_params(deep=False)
    columns = [_rows_of(every, few) for every, few in zip(categories, rare, strict=True)]
    length = max(len(column) for column in columns)
    # the filling is in no category and so counts for none
    frame = pd.DataFrame({place: _fill(c, length) for place, c in enumerate(columns)})
    made_up: dict[str, Any] = {"categories": categories, "handle_unknown": "ignore"}
    if isinstance(encoder, OrdinalEncoder):
        made_up |= {"handle_unknown": "use_encoded_value", "unknown_value": -1}
    if _merges_rare_categories(encoder):
        made_up |= {"min_frequency": 2, "max_categories": None}
    encoder.set_params(**made_up).fit(frame)
    encoder.set_params(**given)
    encoder.categories_ = categories
    require(_write_encoder(encoder)["rare"] == rare, "rare categories are invalid")


def _rows_of(categories: Any, rare: Any) -> list[Any]:
    """Return each category twice, rare ones once."""
    is_list = isinstance(categories, np.ndarray) and categories.ndim == 1
    require(is_list, "categories are invalid")
    places = set(rare or [])
    whole = {*map(type, places)} <= {int} and places <= set(range(len(categories)))
    require(whole, "rare categories are invalid")
    values = categories.tolist()
    return values + [value for place, value in enumerate(values) if place not in places]


def _fill(values: list[Any], length: int) -> pd.Series:
    """Fill a column up to a length with a value in no category."""
    if all(type(value) in (int, float, bool) for value in values):
        finite = [value for value in values if value == value]
        other: Any = max(finite, default=0) + 1
    else:
        other = max((value for value in values if isinstance(value, str)), default="") + "a"
    return pd.Series(values + [other] * (length - len(values)), dtype=None if values else float)


def _read_reader(reader: ColumnReader, learned: Learned) -> None:
    check_names(learned, (), "learned")
    names = [each["name"] for each in reader.columns if each["kind"] in READ]
    reader.fit(pd.DataFrame(columns=names))


FORMS: dict[str, TransformerFormat] = {
    form.kind.__name__: form
    for form in (
        TransformerFormat(ColumnTransformer, lambda _: {}, lambda *_: None),
        TransformerFormat(Pipeline, lambda _: {}, lambda *_: None),
        TransformerFormat(SimpleImputer, _write_imputer, _read_imputer),
        TransformerFormat(OneHotEncoder, _write_encoder, _read_encoder),
        TransformerFormat(OrdinalEncoder, _write_encoder, _read_encoder),
        TransformerFormat(
            StandardScaler, *_attributes("mean_", "var_", "scale_", "n_samples_seen_")
        ),
        TransformerFormat(RobustScaler, *_attributes("center_", "scale_")),
        TransformerFormat(VarianceThreshold, *_attributes("variances_")),
        TransformerFormat(ColumnReader, lambda _: {}, _read_reader),
    )
}
"""Transformers that can be saved, by name."""

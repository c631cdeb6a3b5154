"""JSON records of fitted scikit-learn transformers of known classes.

A record names the class, its parameters, and what was learned in public terms: means, medians,
categories, which of them are rare, which columns go where. No private state of scikit-learn is
written. If a transformer needs private state, it is fitted to a few made-up rows that lead to the
learned values; these are then set and compared. So another version of scikit-learn can read a
model, and a record cannot name anything that would be run.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, RobustScaler, StandardScaler

from wri.datasets.columns import READ, ColumnReader, MedianImputer
from wri.errors import InputError
from wri.estimators.pipeline import EnvironmentPipeline
from wri.saving.folder import require
from wri.saving.values import NUMBER_TYPES, check_entries, check_names, check_texts, pack, unpack

Learned = dict[str, Any]
WORDS = ("passthrough", "drop")
UNREAD = "n_jobs"  # a record must not start processes


class TransformerFormat(NamedTuple):
    """Functions that write and read what a class of transformers has learned."""

    kind: type
    write: Callable[[Any], Learned]
    read: Callable[[Any, Learned], None]


def encode_steps(steps: Sequence[tuple[str, Any]], where: str = "", fitted: bool = True) -> Any:
    """Encode named transformers for JSON; an InputError names one that cannot be saved."""
    return [{"name": name, "is": _encode(step, f"{where}{name}", fitted)} for name, step in steps]


def decode_steps(records: Any) -> list[tuple[str, Any]]:
    """Decode named transformers; raise a ValueError if the record is invalid."""
    require(isinstance(records, list) and len(records) > 0, "steps must be a list")
    steps = []
    for record in records:
        require(isinstance(record, dict), "a step is not an object")
        check_names(record, ("name", "is"), "a step has entries")
        require(isinstance(record["name"], str), "a step has no name")
        steps.append((record["name"], _decode(record["is"])))
    require(len(dict(steps)) == len(steps), "two steps have one name")
    return steps


def decode_pipeline(record: dict[str, Any], model: Any) -> EnvironmentPipeline:
    """Decode the preprocessing of an estimator; join them."""
    check_entries(record, {"name": (str,), "steps": (list,)}, "preprocessing")
    width = n = model.n_features_in_
    try:
        steps = decode_steps(record["steps"]) if record["steps"] else []
        if any(not isinstance(step, str) for _, step in steps):
            width = len(Pipeline(steps).get_feature_names_out())
    except (ValueError, MemoryError):
        raise
    except Exception as error:  # scikit-learn and pandas raise anything for made-up values
        raise ValueError(f"preprocessing is invalid ({error!r:.80})") from error
    require(width == n, f"preprocessing gives {width} columns, but the estimator takes {n}")
    return EnvironmentPipeline([*steps, (record["name"], model)])


def _encode(transformer: Any, where: str, fitted: bool = True) -> Any:
    """Encode a transformer; one without columns is not `fitted` and has learned nothing."""
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
            return {"class": name, **_encode_columns(transformer, where)}
        if name == "Pipeline":
            return {"class": name, "steps": encode_steps(transformer.steps, f"{where}.", fitted)}
        learned = {**_encode_width(transformer), **FORMS[name].write(transformer)} if fitted else {}
        return {
            "class": name,
            "parameters": _pack_each(transformer.get_params(deep=False)),
            "output": _output(transformer),
            "learned": _pack_each(learned) if fitted else None,
        }
    except TypeError as error:
        raise InputError(f"step {where!r} ({name}): {error}; give it plain values") from error


def _decode(record: Any) -> Any:
    """Decode the transformer of a record; raise a ValueError if the record is invalid."""
    if isinstance(record, str):
        require(record in WORDS, f"{record!r:.40} is not a transformer")
        return record
    name = str(record.get("class")) if isinstance(record, dict) else ""
    require(name in FORMS, f"transformer {name!r:.40} is unknown")
    if name == "ColumnTransformer":
        return _decode_columns(record)
    if name == "Pipeline":
        check_names(record, ("class", "steps"), "Pipeline has entries")
        return Pipeline(decode_steps(record["steps"]))
    check_names(record, ("class", "parameters", "output", "learned"), f"{name} has entries")
    transformer = _construct(FORMS[name].kind, record["parameters"], record["output"])
    if record["learned"] is None:
        return transformer
    require(isinstance(record["learned"], dict), f"learned values of {name} are invalid")
    learned = {key: unpack(value) for key, value in record["learned"].items()}
    n, names = learned.pop("n_features", None), learned.pop("feature_names", None)
    _check_width(n, names)
    transformer.n_features_in_ = n
    try:
        FORMS[name].read(transformer, learned)
    except (LookupError, AttributeError) as error:
        raise ValueError(f"learned values of {name} are invalid ({error!r:.80})") from error
    transformer.n_features_in_ = n
    vars(transformer).pop("feature_names_in_", None)  # those of made-up rows
    if names is not None:
        transformer.feature_names_in_ = np.array(names, dtype=object)
    return transformer


def _pack_each(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: pack(value) for key, value in values.items()}


def _encode_width(transformer: Any) -> dict[str, Any]:
    """Return the number of columns and their names."""
    names = getattr(transformer, "feature_names_in_", None)
    return {
        "n_features": int(transformer.n_features_in_),
        "feature_names": None if names is None else names.tolist(),
    }


def _check_width(n: Any, names: Any) -> None:
    require(type(n) is int and n > 0, f"{n!r:.40} columns are impossible")
    if names is not None:
        check_texts(names, n)


def _construct(kind: type, packed: Any, output: Any) -> Any:
    """Make a transformer from its packed parameters; check them."""
    require(isinstance(packed, dict), f"parameters of {kind.__name__} must be an object")
    parameters = {key: unpack(value) for key, value in packed.items()}
    transformer = kind(**parameters)
    if hasattr(transformer, "_validate_params"):
        transformer._validate_params()
    dtype = parameters.get("dtype", float)  # which scikit-learn does not check
    number = isinstance(dtype, type | str) and np.dtype(dtype).name in NUMBER_TYPES
    require(number, f"dtype {dtype!r:.40} is unknown")
    return _set_output(transformer, output)


def _set_output(transformer: Any, output: Any) -> Any:
    require(output in (None, "default", "pandas"), f"output {output!r:.40} is unknown")
    return transformer if output is None else transformer.set_output(transform=output)


def _output(transformer: Any) -> str | None:
    """Return the setting of `set_output`, if there is one."""
    return getattr(transformer, "_sklearn_output_config", {}).get("transform")


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
PARTS_ENTRIES = (
    *("class", "parameters", "output", "parts", "remainder", "sparse"),
    *("n_features", "feature_names"),
)


def _encode_columns(columns: ColumnTransformer, where: str) -> dict[str, Any]:
    """Encode a fitted `ColumnTransformer` with its parts."""
    given = {name: transformer for name, transformer, _ in columns.transformers}
    given["remainder"] = columns.remainder
    parts = []
    for name, transformer, chosen in columns.transformers_:
        place = columns.output_indices_[name]
        word = given[name] if isinstance(given[name], str) else None
        empty = hasattr(chosen, "__len__") and len(chosen) == 0
        record = word or _encode(transformer, f"{where}.{name}", not empty)
        width = place.stop - place.start
        parts.append({"name": name, "is": record, "columns": pack(chosen), "width": width})
    return {
        "parameters": {key: pack(getattr(columns, key)) for key in PART_PARAMETERS},
        "output": _output(columns),
        "parts": parts,
        "remainder": given["remainder"] if isinstance(given["remainder"], str) else None,
        "sparse": bool(columns.sparse_output_),
        **_encode_width(columns),
    }


def _decode_columns(record: Mapping[str, Any]) -> ColumnTransformer:
    """Decode a `ColumnTransformer`.

    It is fitted to two rows of zeros with placeholders for its parts, so that it learns which
    columns go where; then the parts replace the placeholders.
    """
    check_names(record, PARTS_ENTRIES, "ColumnTransformer has entries")
    given = {key: value for key, value in record["parameters"].items() if key != UNREAD}
    check_names(given, PART_PARAMETERS, "ColumnTransformer has parameters")
    n, names = record["n_features"], record["feature_names"]
    _check_width(n, names)
    require(type(record["sparse"]) is bool, "sparse must be true or false")
    parts = [_decode_part(part) for part in record["parts"]]
    fitted = {name: part for name, part, _, _ in parts}
    require(len(fitted) == len(parts), "two parts have one name")
    rest = fitted.get("remainder", record["remainder"])
    require(record["remainder"] in (None, *WORDS) and rest is not None, "the remainder is invalid")
    made = _construct(ColumnTransformer, {"transformers": [], **given}, None)

    def give(transformers: Mapping[str, Any]) -> None:
        own = [(name, chosen) for name, _, chosen, _ in parts if name != "remainder"]
        made.transformers = [(name, transformers[name], chosen) for name, chosen in own]
        made.remainder = transformers.get("remainder", rest)

    give({name: placeholder for name, _, _, placeholder in parts})
    verbose, made.verbose = made.verbose, False
    rows = np.zeros((2, n))
    made.fit(rows if names is None else pd.DataFrame(rows, columns=names))
    made.verbose = verbose
    give({name: clone(part, safe=False) for name, part in fitted.items()})
    made.transformers_ = [
        (name, each if isinstance(fitted.get(name, ""), str) else fitted[name], chosen)
        for name, each, chosen in made.transformers_
    ]
    made.sparse_output_ = record["sparse"]
    return _set_output(made, record["output"])


def _decode_part(part: Any) -> tuple[str, Any, Any, Any]:
    """Decode one part: name, transformer, columns and placeholder."""
    require(isinstance(part, dict), "a part of ColumnTransformer is not an object")
    check_names(part, ("name", "is", "columns", "width"), "a part of ColumnTransformer has entries")
    name, width, transformer = part["name"], part["width"], _decode(part["is"])
    require(isinstance(name, str) and type(width) is int, "a part of ColumnTransformer is invalid")
    require(width >= 0, f"a part of {width:,} columns is impossible")
    chosen = unpack(part["columns"])
    if isinstance(transformer, str):
        return name, transformer, chosen, transformer
    if width:
        real = len(transformer.get_feature_names_out())
        require(real == width, f"part {name!r:.40} has another number of columns")
    return name, transformer, chosen, _PlaceholderTransformer(width)


ATTRIBUTES: Mapping[type, Mapping[str, tuple[str, ...]]] = {
    StandardScaler: {
        "mean_": ("with_mean", "with_std"),
        "var_": ("with_std",),
        "scale_": ("with_std",),
        "n_samples_seen_": (),
    },
    RobustScaler: {"center_": ("with_centering",), "scale_": ("with_scaling",)},
    VarianceThreshold: {"variances_": ()},
}
"""Public attributes that are all a transformer learns, and the parameters that make it use them."""


def _write_attributes(transformer: Any) -> Learned:
    return {name: getattr(transformer, name) for name in ATTRIBUTES[type(transformer)]}


def _read_attributes(transformer: Any, learned: Learned) -> None:
    check_names(learned, ATTRIBUTES[type(transformer)], "learned")
    for name, value in learned.items():
        flags = ATTRIBUTES[type(transformer)][name]
        if name == "n_samples_seen_":
            require(type(value) in (int, float), f"{name} is not a number")
        elif flags and not any(getattr(transformer, flag) for flag in flags):
            require(value is None, f"{name} is not used")
        else:
            require(isinstance(value, np.ndarray), f"{name} is not an array")
            numbers = value.dtype.kind in "iuf" and value.shape == (transformer.n_features_in_,)
            require(numbers, f"{name} is not a number per column")
        setattr(transformer, name, value)


def _write_imputer(imputer: SimpleImputer) -> Learned:
    indicator = imputer.indicator_
    dtype = getattr(imputer, "_fill_dtype", imputer.statistics_.dtype)
    return {
        "statistics": imputer.statistics_,
        "indicated": None if indicator is None else indicator.features_.tolist(),
        "numbers": dtype.kind != "O",
    }


def _read_imputer(imputer: SimpleImputer, learned: Learned) -> None:
    statistics, indicated = learned["statistics"], learned["indicated"]
    n, missing = imputer.n_features_in_, imputer.missing_values
    per_column = isinstance(statistics, np.ndarray) and statistics.shape == (n,)
    require(per_column, "statistics are invalid")
    require((indicated is None) is not imputer.add_indicator, "the indicator is invalid")
    rows = np.full((2, n), 0.0) if learned["numbers"] else np.full((2, n), "a", object)
    if missing == 0:
        rows += 1
    for column in indicated or []:
        require(type(column) is int and 0 <= column < n, f"column {column!r:.40} is impossible")
        rows[1, column] = missing
    imputer.fit(rows)
    require(_write_imputer(imputer)["indicated"] == indicated, "the indicator is invalid")
    imputer.statistics_ = statistics


def _merges_rare_categories(encoder: Any) -> bool:
    return encoder.min_frequency is not None or encoder.max_categories is not None


def _write_encoder(encoder: Any) -> Learned:
    merges = _merges_rare_categories(encoder)
    rare = encoder.infrequent_categories_ if merges else [None] * encoder.n_features_in_
    return {
        "categories": list(encoder.categories_),
        "rare": [
            None if few is None else np.flatnonzero(pd.Series(every).isin(few)).tolist()
            for every, few in zip(encoder.categories_, rare, strict=True)
        ],
    }


def _read_encoder(encoder: Any, learned: Learned) -> None:
    categories, rare = learned["categories"], learned["rare"]
    n, given = encoder.n_features_in_, encoder.get_params(deep=False)
    require(isinstance(categories, list) and len(categories) == n, "categories are invalid")
    require(isinstance(rare, list) and len(rare) == n, "rare categories are invalid")
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
        other: Any = max((value for value in values if value == value), default=0) + 1
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
        TransformerFormat(MedianImputer, _write_imputer, _read_imputer),
        TransformerFormat(OneHotEncoder, _write_encoder, _read_encoder),
        TransformerFormat(OrdinalEncoder, _write_encoder, _read_encoder),
        *(TransformerFormat(kind, _write_attributes, _read_attributes) for kind in ATTRIBUTES),
        TransformerFormat(ColumnReader, lambda _: {}, _read_reader),
    )
}
"""Transformers that can be saved, by name."""

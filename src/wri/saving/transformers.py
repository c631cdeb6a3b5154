"""JSON records of fitted scikit-learn transformers of known classes.

A record names the class, its parameters, and what was learned in public terms: means, medians,
categories, which of them are rare, which columns go where. No private state of scikit-learn is
written. To read a record, a transformer is fitted to a few made-up rows, gets the learned values,
and must then give the same record again. So another version of scikit-learn can read a model, and
a record cannot name anything that would be run.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from wri.datasets.columns import READ, ColumnReader, MedianImputer
from wri.errors import InputError
from wri.estimators.pipeline import EnvironmentPipeline
from wri.saving.folder import require
from wri.saving.values import NUMBER_TYPES, check_entries, decode_names, pack, unpack

Learned = dict[str, Any]
WORDS = ("passthrough", "drop")
UNREAD = "n_jobs"  # a record must not start processes
PARTS = ("sparse_threshold", "transformer_weights", "verbose", "verbose_feature_names_out")


def encode_steps(steps: Sequence[tuple[str, Any]], where: str = "") -> list[dict[str, Any]]:
    """Encode named transformers for JSON; an InputError names one that cannot be saved."""
    return [{"name": name, "is": _encode(step, f"{where}{name}")} for name, step in steps]


def decode_pipeline(record: dict[str, Any], model: Any) -> EnvironmentPipeline:
    """Decode the preprocessing of an estimator; join them.

    What was decoded must encode to the same record.
    """
    check_entries(record, {"name": (str,), "steps": (list,)}, "preprocessing")
    width = n = model.n_features_in_
    try:
        steps = _decode_steps(record["steps"])
        same = _comparable(encode_steps(steps)) == _comparable(record["steps"])
        if any(not isinstance(step, str) for _, step in steps):
            width = len(Pipeline(steps).get_feature_names_out())
    except (ValueError, MemoryError):
        raise
    except Exception as error:  # scikit-learn and pandas raise anything for made-up values
        raise ValueError(f"preprocessing is invalid ({error!r:.80})") from error
    require(same, "preprocessing holds invalid values")
    require(width == n, f"preprocessing gives {width} columns, but the estimator takes {n}")
    return EnvironmentPipeline([*steps, (record["name"], model)])


def _comparable(record: Any) -> Any:
    """Drop parameters, which scikit-learn checks, and what it finds out itself."""
    if isinstance(record, list):
        return [_comparable(each) for each in record if not _is_remainder(each)]
    if isinstance(record, dict):
        return {key: _comparable(each) for key, each in record.items() if key != "parameters"}
    return record


def _is_remainder(part: Any) -> bool:
    return isinstance(part, dict) and part.get("name") == "remainder"


def _encode(transformer: Any, where: str) -> Any:
    """Encode a transformer; one without columns has learned nothing."""
    if transformer is None or isinstance(transformer, str):
        return transformer or "passthrough"
    kind: Any = type(transformer)
    name = kind.__name__
    if kind not in KINDS.values():
        raise InputError(
            f"step {where!r} is {name}, which cannot be saved without code; transformers that can "
            f"be saved are {', '.join(KINDS)}. Use these, or apply {name} before the pipeline"
        )
    try:
        if name == "ColumnTransformer":
            return {"class": name, **_encode_columns(transformer, where)}
        if name == "Pipeline":
            return {"class": name, "steps": encode_steps(transformer.steps, f"{where}.")}
        learned = None
        if hasattr(transformer, "n_features_in_"):
            write, _ = FORMS[kind]
            learned = pack({**_encode_width(transformer), **write(transformer)})["dict"]
        return {
            "class": name,
            "parameters": pack(transformer.get_params(deep=False))["dict"],
            "output": _output(transformer),
            "learned": learned,
        }
    except TypeError as error:
        raise InputError(f"step {where!r} ({name}): {error}; give it plain values") from error


def _decode_steps(records: Any) -> list[tuple[str, Any]]:
    return [(str(record["name"]), _decode(record["is"])) for record in records]


def _decode(record: Any) -> Any:
    """Decode the transformer of a record; any exception shows that the record is invalid."""
    if isinstance(record, str):
        require(record in WORDS, f"{record!r:.40} is not a transformer")
        return record
    name = record["class"]
    require(name in KINDS, f"transformer {name!r:.40} is unknown")
    if name == "ColumnTransformer":
        return _decode_columns(record)
    if name == "Pipeline":
        return Pipeline(_decode_steps(record["steps"]))
    transformer = _construct(KINDS[name], record["parameters"], record["output"])
    if record["learned"] is not None:
        learned = unpack({"dict": record["learned"]})
        n, names = learned["n_features"], learned["feature_names"]
        _, read = FORMS[KINDS[name]]
        read(transformer, learned, n)
        require(transformer.n_features_in_ == n, f"{name} has learned another number of columns")
        vars(transformer).pop("feature_names_in_", None)  # those of made-up rows
        if names is not None:
            transformer.feature_names_in_ = decode_names(names, n)
    return transformer


def _encode_width(transformer: Any) -> dict[str, Any]:
    """Return the number of columns and their names."""
    names = getattr(transformer, "feature_names_in_", None)
    return {
        "n_features": int(transformer.n_features_in_),
        "feature_names": None if names is None else names.tolist(),
    }


def _construct(kind: type, packed: dict[str, Any], output: Any) -> Any:
    """Make a transformer from its packed parameters; check them."""
    parameters = {key: unpack(value) for key, value in packed.items() if key != UNREAD}
    transformer: Any = kind(**parameters)
    transformer._validate_params()
    dtype = np.dtype(parameters.get("dtype", float))  # which scikit-learn does not check
    require(dtype.name in NUMBER_TYPES, f"dtype {dtype!r:.40} is unknown")
    return _set_output(transformer, output)


def _set_output(transformer: Any, output: Any) -> Any:
    require(output in (None, "default", "pandas"), f"output {output!r:.40} is unknown")
    return transformer if output is None else transformer.set_output(transform=output)


def _output(transformer: Any) -> str | None:
    """Return the setting of `set_output`, if there is one."""
    return getattr(transformer, "_sklearn_output_config", {}).get("transform")


def _encode_columns(columns: ColumnTransformer, where: str) -> dict[str, Any]:
    """Encode a fitted `ColumnTransformer` with its parts."""
    require(isinstance(columns.remainder, str), f"step {where!r}: remainder is a transformer")
    given = {name: transformer for name, transformer, _ in columns.transformers}
    given["remainder"] = columns.remainder
    parts = []
    for name, transformer, chosen in columns.transformers_:
        place = columns.output_indices_[name]
        word = given[name] if isinstance(given[name], str) else None
        record = word or _encode(transformer, f"{where}.{name}")
        width = place.stop - place.start
        parts.append({"name": name, "is": record, "columns": pack(chosen), "width": width})
    return {
        "parameters": {key: pack(getattr(columns, key)) for key in PARTS},
        "output": _output(columns),
        "parts": parts,
        "remainder": columns.remainder,
        "sparse": bool(columns.sparse_output_),
        **_encode_width(columns),
    }


def _decode_columns(record: dict[str, Any]) -> ColumnTransformer:
    """Decode a `ColumnTransformer`.

    It is fitted to two rows of zeros with placeholders for its parts, so that it learns which
    columns go where; then the parts replace the placeholders.
    """
    n, names, rest = record["n_features"], record["feature_names"], record["remainder"]
    require(rest in WORDS, "the remainder is invalid")
    made = _construct(ColumnTransformer, {**record["parameters"], "transformers": []}, None)
    made.remainder = rest
    fitted, given = {}, []
    for part in record["parts"]:
        if _is_remainder(part):
            continue
        name, width, transformer = part["name"], part["width"], _decode(part["is"])
        placeholder: Any = transformer
        if not isinstance(transformer, str):
            placeholder = FunctionTransformer(lambda rows, n=width: np.zeros((len(rows), n)))
            fitted[name] = transformer
            real = len(transformer.get_feature_names_out()) if width else 0
            require(real == width, f"part {name!r:.40} has another number of columns")
        chosen = unpack(part["columns"])
        made.transformers.append((name, placeholder, chosen))
        given.append((name, clone(transformer, safe=False), chosen))
    rows = np.zeros((2, n))
    made.fit(rows if names is None else pd.DataFrame(rows, columns=names))
    made.transformers = given
    made.transformers_ = [
        (name, fitted.get(name, each), chosen) for name, each, chosen in made.transformers_
    ]
    made.sparse_output_ = bool(record["sparse"])
    return _set_output(made, record["output"])


ATTRIBUTES: dict[type, tuple[str, ...]] = {
    StandardScaler: ("mean_", "var_", "scale_", "n_samples_seen_"),
    RobustScaler: ("center_", "scale_"),
    VarianceThreshold: ("variances_",),
}
"""Public attributes that are all a transformer learns."""


def _write_attributes(transformer: Any) -> Learned:
    return {name: getattr(transformer, name) for name in ATTRIBUTES[type(transformer)]}


def _read_attributes(transformer: Any, learned: Learned, n: int) -> None:
    transformer.fit(np.outer([0.0, 1e100], np.ones(n)))
    for name, made in _write_attributes(transformer).items():
        value = learned[name]
        numbers = np.shape(value) == np.shape(made) and np.asarray(value).dtype.kind in "iuf"
        require(value is None if made is None else numbers, f"{name} holds invalid values")
        setattr(transformer, name, value)


def _write_imputer(imputer: SimpleImputer) -> Learned:
    indicator = imputer.indicator_
    dtype = getattr(imputer, "_fill_dtype", imputer.statistics_.dtype)
    return {
        "statistics": imputer.statistics_,
        "indicated": None if indicator is None else indicator.features_.tolist(),
        "numbers": dtype.kind != "O",
    }


def _read_imputer(imputer: SimpleImputer, learned: Learned, n: int) -> None:
    rows = np.full((2, n), 0.0) if learned["numbers"] else np.full((2, n), "a", object)
    if imputer.missing_values == 0:
        rows += 1
    for column in learned["indicated"] or []:
        rows[1, column] = imputer.missing_values
    imputer.fit(rows)
    statistics = learned["statistics"]
    require(np.shape(statistics) == (n,), "statistics hold invalid values")
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


def _read_encoder(encoder: Any, learned: Learned, n: int) -> None:
    """Fit an encoder to rows with each category twice, and rare ones once."""
    categories, given = learned["categories"], encoder.get_params(deep=False)
    columns = []
    for every, rare in zip(categories, learned["rare"], strict=True):
        require(np.ndim(every) == 1, "categories must be lists")
        columns.append(every.tolist() + np.delete(every, rare or []).tolist())
    length = max(map(len, columns))
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


def _fill(values: list[Any], length: int) -> pd.Series:
    """Fill a column up to a length with a value in no category."""
    if all(type(value) in (int, float, bool) for value in values):
        other: Any = max((value for value in values if value == value), default=0) + 1
    else:
        other = max((value for value in values if isinstance(value, str)), default="") + "a"
    return pd.Series(values + [other] * (length - len(values)), dtype=None if values else float)


def _read_reader(reader: ColumnReader, learned: Learned, n: int) -> None:
    names = [each["name"] for each in reader.columns if each["kind"] in READ]
    reader.fit(pd.DataFrame(columns=names))


FORMS: dict[type, tuple[Callable[[Any], Learned], Callable[[Any, Learned, int], None]]] = {
    SimpleImputer: (_write_imputer, _read_imputer),
    MedianImputer: (_write_imputer, _read_imputer),
    OneHotEncoder: (_write_encoder, _read_encoder),
    OrdinalEncoder: (_write_encoder, _read_encoder),
    **dict.fromkeys(ATTRIBUTES, (_write_attributes, _read_attributes)),
    ColumnReader: (lambda _: {}, _read_reader),
}
"""Functions that write and read what a class of transformers has learned."""
KINDS: dict[str, type] = {kind.__name__: kind for kind in (ColumnTransformer, Pipeline, *FORMS)}

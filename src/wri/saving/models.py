"""Saved models: `model.json` and a file of tensors, written from a fitted model and read again.

Nothing in a folder is trusted: every name, type and shape of the tensors must be the one that
`model.json` implies, and sizes are counted before anything is made.
"""

import hashlib
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError
from sklearn.utils.validation import check_is_fitted

import wri
from wri.errors import InputError, check_option
from wri.estimators import ESTIMATORS
from wri.estimators.base import Classifier
from wri.estimators.inputs import check_parameters
from wri.estimators.pipeline import EnvironmentPipeline
from wri.estimators.table_model import TableModel
from wri.saving import folder as files
from wri.saving.fitted import TREE_ENTRIES, Shapes, encode_fitted, fill_fitted, prepare_fitted
from wri.saving.folder import LARGEST, RECORD, named, require, tensors_name
from wri.saving.transformers import UNREAD, decode_pipeline, encode_steps
from wri.saving.values import (
    Types,
    as_json,
    check_entries,
    check_names,
    check_sizes,
    decode_labels,
    decode_names,
    encode_labels,
    record_digest,
)
from wri.training import ModelSpec
from wri.training.spec import decode_option, encode_option

if TYPE_CHECKING:
    from wri.features import Backbone

VERSION = 7
TYPES: Mapping[Types, str] = {
    (str,): "format wri_version estimator evidence_on selection sha256 digest",
    (int,): "format_version features held_out_rows components calibrating_rows tail_power"
    " ranged_rows",
    (float,): "rare_threshold outside_threshold tail_spread",
    (dict,): "parameters not_kept environments spec",
    (dict, NoneType): "classes",
    (list, NoneType): "feature_names state",
    (int, NoneType): "candidates",
    (float, NoneType): "confidence_spread support_spread",
    (bool,): "left_out",
}
ENTRIES = {name: types for types, names in TYPES.items() for name in names.split()}
OPTIONAL: Mapping[str, Types] = {
    **dict.fromkeys(("backbone", "preprocessing", "fit_summary"), (dict,)),
    **TREE_ENTRIES,
}
"""Entries of models of pictures, of pipelines, of `wri fit`, and of trees alone."""


def save(model: TableModel, folder: str | os.PathLike[str]) -> None:
    """Write a fitted estimator or pipeline to a folder, completely or not at all."""
    check_is_fitted(model[-1] if isinstance(model, EnvironmentPipeline) else model, "evidence_")
    target = files.open_folder(folder)
    try:  # what is written can be read
        record, tensors = _encode(model)
        for (what, most), data in zip(LARGEST.items(), (record, tensors), strict=True):
            require(len(data) <= most, f"its {what} would have {len(data):,} bytes")
        _decode(target, record, lambda name, most: tensors)
    except (TypeError, ValueError) as error:
        raise InputError(f"this model cannot be saved: {error.__cause__ or error}") from error
    files.write(target, record, tensors)


def load(
    folder: str | os.PathLike[str], kind: type = object, backbone: "Backbone | None" = None
) -> Any:
    """Load any saved model from its folder.

    No code in the folder is run, so folders from strangers can be loaded.

    Parameters
    ----------
    folder : path-like
        Folder that `save` or `wri fit` wrote.
    kind : type, default=object
        Class that the model must have. For the class of an estimator, a model of pictures gives the
        estimator of the features.
    backbone : Backbone or None, default=None
        Backbone of a model of pictures, if it is one of your own; it must have the saved digest.

    Returns
    -------
    model : estimator, EnvironmentPipeline or PictureClassifier
        The fitted model; its predictions equal those of the saved one to the last bit.

    Raises
    ------
    InputError
        If the folder holds no saved model, a damaged one, or one of another class.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> import wri
    >>> X = np.linspace(-1, 1, 60)[:, None]
    >>> site = np.tile(["north", "east", "south"], 20)
    >>> model = wri.ERMClassifier(steps=30, site_spread=False).fit(X, X[:, 0] > 0, groups=site)
    >>> with TemporaryDirectory() as folder:
    ...     model.save(folder)
    ...     again = wri.load(folder)
    >>> bool((again.predict_proba(X) == model.predict_proba(X)).all())
    True
    """
    home = files.open_folder(folder)
    if not home.is_dir():
        raise InputError(
            f"{home} does not exist or is not a folder; give one that wri fit or save wrote"
        )
    if not os.path.lexists(home / RECORD):
        raise InputError(f"{home} is not a saved model: it has no {RECORD}; wri fit -o makes one")
    model = _load(home, files.read(home, RECORD, LARGEST["record"]))
    if not issubclass(kind, TableModel) and hasattr(model, "backbone_"):
        from wri.estimators.pictures import PictureClassifier  # needs the networks of `features`

        model = PictureClassifier._of_estimator(model, backbone)
    elif backbone is not None:
        raise InputError(f"{home} holds a model of tables, which has no backbone=")
    if not isinstance(model, kind):
        name = type(model).__name__
        raise InputError(
            f"{home / RECORD}: holds {name}, not {kind.__name__}; use wri.load or {name}.load"
        )
    return model


def _load(home: Path, record: bytes) -> Any:
    """Load a model; start again if another process replaced it meanwhile."""
    try:
        return _decode(home, record, lambda name, most: files.read(home, name, most))
    except InputError:
        again = files.read(home, RECORD, LARGEST["record"])
        if again == record:
            raise
        return _load(home, again)


def _encode(model: Any) -> tuple[bytes, bytes]:
    """Encode a fitted estimator or pipeline as the contents of the two files."""
    optional: dict[str, Any] = {"preprocessing": None}
    if isinstance(model, EnvironmentPipeline):
        steps, (last, model) = encode_steps(model.steps[:-1]), model.steps[-1]
        optional["preprocessing"] = {"name": last, "steps": steps}
    optional |= {key: getattr(model, f"{key}_", None) for key in ("backbone", "fit_summary")}
    name = type(model).__name__
    require(ESTIMATORS.get(name) is type(model), f"{name} is not one of wri's own estimators")
    parameters, not_kept = _encode_parameters(model)
    spec, lost_option = _encode_spec(model.spec_)
    not_kept |= lost_option
    if not_kept:
        lost = f"{', '.join(not_kept)} cannot be saved. The loaded model predicts the same"
        warnings.warn(f"{lost}, but fitting it again uses the default", stacklevel=4)
    entries, tensors = encode_fitted(model)
    tensors = {name: _as_tensor(each) for name, each in tensors.items() if each is not None}
    if isinstance(getattr(model, "state_", None), np.ndarray):
        tensors["state"] = np.array(model.state_, order="C")
    data = safetensors.numpy.save(tensors)
    names, losses = getattr(model, "feature_names_in_", None), model.candidate_losses_
    record = {
        "format": files.FORMAT,
        "format_version": VERSION,
        "wri_version": wri.__version__,
        "estimator": name,
        "parameters": parameters,
        "not_kept": not_kept,
        "features": model.n_features_in_,
        "feature_names": None if names is None else names.tolist(),
        "classes": encode_labels(model.classes_, "y") if isinstance(model, Classifier) else None,
        "environments": encode_labels(model.environments_, "groups"),
        "evidence_on": model.evidence_on_,
        "spec": spec,
        **entries,
        "selection": model.selection_,
        "held_out_rows": int(model.n_held_out_),
        "candidates": None if losses is None else len(losses),
        "left_out": model.left_out_ is not None,
        "state": list(tensors["state"].shape) if "state" in tensors else None,
        "sha256": hashlib.sha256(data).hexdigest(),
        **{key: value for key, value in optional.items() if value is not None},
    }
    text = json.dumps({**record, "digest": record_digest(record)}, indent=1) + "\n"
    return text.encode(), data


def _encode_parameters(model: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return constructor arguments for JSON, and descriptions of those without a JSON form."""
    kept, lost = {}, {}
    for key, value in model.get_params(deep=False).items():
        if key != UNREAD:
            try:
                kept[key] = as_json(_encode_parameter(value))
            except (TypeError, ValueError):
                lost[key] = _describe(value)
    return kept, lost


def _encode_parameter(value: Any) -> Any:
    """Return a constructor's argument as plain values; densities become kind and fields."""
    if isinstance(value, Mapping):
        return {name: _encode_parameter(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_encode_parameter(each) for each in value]
    return encode_option(value)


def _encode_spec(spec: ModelSpec) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the specification for JSON, and the description of a density that has no JSON form."""
    try:
        return as_json(spec.as_dict()), {}
    except InputError:
        plain = type(spec.objective)()
        kept = replace(spec, objective=replace(spec.objective, density=plain.density))  # type: ignore[type-var]
        return as_json(kept.as_dict()), {"density": _describe(spec.objective.density)}


def _describe(value: Any) -> str:
    """Return the repr of an object without its address."""
    return re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(value))[:500]


def _as_tensor(array: np.ndarray) -> np.ndarray:
    """Return numbers as float64 and texts as bytes, in C order, which safetensors expects."""
    return np.array(array, np.uint8 if array.dtype == np.uint8 else np.float64, order="C")


def _decode(folder: Path, record_data: bytes, tensor_data: Callable[[str, int], bytes]) -> Any:
    """Decode the model of two files; the second is read after the first was checked.

    `tensor_data` takes the name of the file and the largest number of bytes it may have.
    """
    with named(folder / RECORD):
        record = _decode_record(record_data)
        model = _decode_unfilled(record)
        shapes = prepare_fitted(model, record)
        name = tensors_name(record["sha256"])
    with named(folder / name):
        numbers = sum(math.prod(shape) for shape in shapes.values())
        data = tensor_data(name, min(LARGEST["tensors"], 8 * numbers + files.LARGEST_HEADER + 8))
        same = hashlib.sha256(data).hexdigest() == record["sha256"]
        require(same, f"its contents are not those that {RECORD} was written with")
        arrays = _decode_tensors(data, shapes)
        fill_fitted(model, record, arrays)
    with named(folder / RECORD):
        preprocessing = record.get("preprocessing")
        return model if preprocessing is None else decode_pipeline(preprocessing, model)


def _decode_record(data: bytes) -> dict[str, Any]:
    """Decode `model.json`; check its version, digest and entries."""
    try:
        record = json.loads(data)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"is not JSON ({error})") from error
    ours = isinstance(record, dict) and record.get("format") == files.FORMAT
    require(ours, f'has no entry "format": "{files.FORMAT}"')
    version, writer = record.get("format_version"), record.get("wri_version")
    if type(version) is int and version > 0 and version != VERSION:
        remedy = "fit and save the model again"
        if version > VERSION:
            remedy = "pip install --upgrade weighted-risk-invariance"
        raise InputError(
            f"was written by wri {writer!r:.40} in format {version}, but wri {wri.__version__} "
            f"reads format {VERSION}; {remedy}"
        )
    require(version == VERSION, f"format_version must be {VERSION}, not {version!r:.40}")
    require(record.get("digest") == record_digest(record), "was changed after it was written")
    optional = {name: types for name, types in OPTIONAL.items() if name in record}
    check_entries(record, {**ENTRIES, **optional}, "the file")
    check_sizes(record)
    return record


def _decode_unfilled(record: Mapping[str, Any]) -> Any:
    """Make the model without its predictor and its arrays."""
    name, features, names = record["estimator"], record["features"], record["feature_names"]
    require(name in ESTIMATORS, f"estimator {name!r:.40} is unknown")
    require(features > 0, f"{features} features are impossible")
    given = {key: value for key, value in record["parameters"].items() if key != UNREAD}
    model: Any = ESTIMATORS[name](**_decode_parameter(given))
    check_parameters(model)
    check_option("evidence_on", record["evidence_on"], model._sees)
    model.evidence_on_ = record["evidence_on"]
    model.n_features_in_ = features
    if "backbone" in record:
        require(isinstance(model, Classifier), "a regressor has no backbone")
        check_entries(record["backbone"], {"name": (str,), "digest": (str,)}, "backbone")
        model.backbone_ = record["backbone"]
    if names is not None:
        model.feature_names_in_ = decode_names(names, features)
    model.environments_ = decode_labels(record["environments"], "environments", 1)
    model.n_environments_ = len(model.environments_)
    if isinstance(model, Classifier):
        model.classes_ = decode_labels(record["classes"] or {}, "classes", 2)
    else:
        require(record["classes"] is None, "a regressor has no classes")
    model.selection_, model.n_held_out_ = record["selection"], record["held_out_rows"]
    model.fit_summary_ = record.get("fit_summary")
    return model


def _decode_parameter(value: Any, name: str = "") -> Any:
    """Decode the result of `_encode_parameter`; `hidden` is a tuple again."""
    if isinstance(value, dict) and name in ("", "hyper", "options"):  # "": all, or a candidate
        return {key: _decode_parameter(each, key) for key, each in value.items()}
    if isinstance(value, dict):
        return decode_option(value)
    if isinstance(value, list):
        return (tuple if name == "hidden" else list)(map(_decode_parameter, value))
    return value


def _decode_tensors(data: bytes, implied: Shapes) -> dict[str, np.ndarray]:
    """Decode the tensors; check names, types, shapes and that all numbers are finite."""
    try:
        found = safetensors.numpy.load(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"is cut off or damaged ({error})") from error
    check_names(found, implied, "has tensors")
    for name, shape in implied.items():
        array, kind = found[name], "uint8" if name.startswith("forest.") else "float64"
        types = (kind, "float32" if name == "state" else kind)
        right = array.shape == shape and array.dtype.name in types
        given, due = f"{array.dtype}{list(array.shape)}", f"{kind}{list(shape)}"
        require(right, f"{name} is {given:.200}, but {RECORD} implies {due:.200}")
        # a candidate that diverged has no loss
        finite = name == "candidate_losses" or bool(np.isfinite(array).all())
        require(finite, f"{name} holds NaN or infinity")
    return {name: array.copy() for name, array in found.items()}  # writable, as torch wants them

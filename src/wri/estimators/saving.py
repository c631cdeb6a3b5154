"""Saved models: a folder of two files without code.

    model.json            format version, estimator, its parameters, features, labels, thresholds,
                          how it was trained, the preprocessing of a pipeline, what `wri fit`
                          measured, and two SHA-256: of the other file and of itself
    model-….safetensors   weights or the text of forests, units of inputs and target, densities,
                          ranges of columns, losses of left-out sites, scores of held-out rows with
                          their predictions and losses; its SHA-256 is part of its name

A loaded model gives the same predictions, scores and verdicts to the last bit. The folder holds the
predictions and losses of the held-out rows, from which their outcomes can be computed. It does not
hold their columns, except that the minimum and the maximum of each column are values of some row.
Objects other than wri's densities (a density that holds a function, a RandomState) are not saved;
the folder holds a description of them, and the loaded model has the default.

A folder whose files were changed is refused. Nothing in a folder is trusted: links are not
followed, sizes are checked before contents are read, and every name, type and shape must be the one
that `model.json` implies.
"""

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError
from sklearn.utils.validation import check_is_fitted

import wri
from wri.densities import Mixture
from wri.errors import InputError, check_option
from wri.estimators.classifiers import Classifier
from wri.estimators.column_records import UNREAD
from wri.estimators.common import EnvironmentEstimator
from wri.estimators.derived import ESTIMATORS
from wri.estimators.folders import SavedInFolders
from wri.estimators.model_folder import (
    FORMAT,
    LARGEST,
    LARGEST_HEADER,
    RECORD,
    FolderContents,
    named,
    open_folder,
    read,
    require,
    tensors_name,
    write,
)
from wri.estimators.model_record import (
    Types,
    check_entries,
    check_names,
    check_sizes,
    decode_known,
    decode_labels,
    decode_left_out,
    decode_ranges,
    encode_labels,
    record_digest,
)
from wri.estimators.parameters import check_parameters
from wri.estimators.pipeline import (
    EnvironmentPipeline,
    join_preprocessing,
    split_preprocessing,
)
from wri.estimators.saved_parts import (
    feature_names,
    model_tensors,
    parameters_record,
    spec_record,
)
from wri.estimators.saved_predictors import (
    TREE_ENTRIES,
    decode_parameters,
    form_of,
    read_scaling,
)
from wri.ood.evidence import ConfidenceTails, Densities, Evidence, ScoreTail

VERSION = 6
TYPES: Mapping[Types, str] = {
    (str,): "format wri_version estimator evidence_on selection sha256 digest",
    (int,): "format_version features held_out_rows components calibrating_rows tail_power",
    (float,): "rare_threshold outside_threshold tail_spread",
    (dict,): "parameters not_kept environments spec",
    (dict, NoneType): "classes",
    (list, NoneType): "feature_names state",
    (int, NoneType): "candidates",
    (float, NoneType): "confidence_spread support_spread",
    (bool,): "left_out",
}
ENTRIES = {name: types for types, names in TYPES.items() for name in names.split()}
SPREADS = {
    "scores": "tail_spread",
    "confidence": "confidence_spread",
    "support": "support_spread",
}
"""Distributions of held-out rows and the entries of their spreads; the last two of classifiers."""
BACKBONE = "backbone"
SUMMARY = "fit_summary"
KEPT = (BACKBONE, "preprocessing", SUMMARY)
EXTRAS: Mapping[str, Types] = {**dict.fromkeys(KEPT, (dict,)), **TREE_ENTRIES}
"""Entries of models of pictures, of pipelines, of `wri fit`, and of trees alone."""


def save(model: SavedInFolders, folder: str | os.PathLike[str]) -> None:
    """Write a fitted model to a folder.

    The model replaces an old one completely or not at all.

    Parameters
    ----------
    model : Estimator or EnvironmentPipeline
        The fitted model.
    folder : path-like
        A new or empty folder, or the folder of a saved model, which is replaced.

    Raises
    ------
    InputError
        If the model cannot be saved, or the folder holds other files.
    """
    check_is_fitted(model[-1] if isinstance(model, EnvironmentPipeline) else model, "evidence_")
    target = open_folder(folder)
    try:  # what is written can be read
        files = _encode(split_preprocessing(model))
        for what, most in LARGEST.items():
            size = len(getattr(files, what))
            require(size <= most, f"its {what} would have {size:,} bytes")
        _decode(target, files.record, lambda name, most: files.tensors)
    except (TypeError, ValueError) as error:
        raise InputError(f"this model cannot be saved: {error.__cause__ or error}") from error
    write(target, files)


def load(folder: str | os.PathLike[str], kind: type = object) -> Any:
    """Load a saved model from its folder.

    No code in the folder is run, so folders from strangers can be loaded.

    Parameters
    ----------
    folder : path-like
        Folder that `save` wrote.
    kind : type, default=object
        Class that the model must have.

    Returns
    -------
    model : Estimator or EnvironmentPipeline
        The fitted model; its predictions equal those of the saved one to the last bit.

    Raises
    ------
    InputError
        If the folder holds no saved model, a damaged one, or one of another class.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from wri import ERMClassifier
    >>> from wri.estimators import load
    >>> X = np.linspace(-1, 1, 60)[:, None]
    >>> site = np.tile(["north", "east", "south"], 20)
    >>> model = ERMClassifier(steps=30, site_spread=False).fit(X, X[:, 0] > 0, groups=site)
    >>> with TemporaryDirectory() as folder:
    ...     model.save(folder)
    ...     again = load(folder)
    >>> bool((again.predict_proba(X) == model.predict_proba(X)).all())
    True
    """
    home = open_folder(folder)
    if not home.is_dir():
        raise InputError(f"{home} is not a folder; give the one that save wrote")
    if not os.path.lexists(home / RECORD):
        raise InputError(f"{home} is no saved model, it holds no {RECORD}; wri fit -o makes one")
    model = _load(home, read(home, RECORD, LARGEST["record"]))
    if not isinstance(model, kind):
        name = type(model).__name__
        raise InputError(f"{home / RECORD}: holds {name}, not {kind.__name__}; use {name}.load")
    return model


def _load(home: Path, record: bytes) -> Any:
    """Load a model; start again if another process replaced it meanwhile."""
    try:
        return _decode(home, record, lambda name, most: read(home, name, most))
    except InputError:
        again = read(home, RECORD, LARGEST["record"])
        if again == record:
            raise
        return _load(home, again)  # another process saved a model here meanwhile


def _encode(model: EnvironmentEstimator) -> FolderContents:
    """Encode a fitted estimator as the contents of the two files."""
    name = type(model).__name__
    require(ESTIMATORS.get(name) is type(model), f"{name} is not one of wri's own estimators")
    parameters, not_kept = parameters_record(model)
    spec, lost_option = spec_record(model.spec_)
    not_kept |= lost_option
    if not_kept:
        lost = f"{', '.join(not_kept)}: objects are not saved; the loaded model predicts the same,"
        warnings.warn(f"{lost} but its fit would take the default", stacklevel=4)
    tensors = model_tensors(model)
    data = safetensors.numpy.save(tensors)
    evidence, losses, tail = model.evidence_, model.candidate_losses_, model.evidence_.tail
    certainty = evidence.certainty
    record = {
        "format": FORMAT,
        "format_version": VERSION,
        "wri_version": wri.__version__,
        "estimator": name,
        "parameters": parameters,
        "not_kept": not_kept,
        "features": model.n_features_in_,
        "feature_names": feature_names(model),
        "classes": encode_labels(model.classes_, "y") if isinstance(model, Classifier) else None,
        "environments": encode_labels(model.environments_, "groups"),
        "evidence_on": model.evidence_on_,
        "spec": spec,
        "rare_threshold": float(evidence.rare),
        "outside_threshold": float(evidence.outside),
        "components": evidence.densities.form.components,
        "calibrating_rows": len(tail.scores),
        "tail_power": int(tail.power),
        "tail_spread": float(tail.spread),
        "confidence_spread": None if certainty is None else float(certainty.confidence.spread),
        "support_spread": None if certainty is None else float(certainty.support.spread),
        "selection": model.selection_,
        "held_out_rows": int(model.n_held_out_),
        "candidates": None if losses is None else len(losses),
        "left_out": model.left_out_ is not None,
        "state": list(tensors["state"].shape) if "state" in tensors else None,
        "sha256": hashlib.sha256(data).hexdigest(),
        **form_of(model).entries(model),
        **{key: kept for key in KEPT if (kept := getattr(model, f"{key}_", None)) is not None},
    }
    text = json.dumps({**record, "digest": record_digest(record)}, indent=1) + "\n"
    return FolderContents(text.encode(), data)


def _decode(folder: Path, record_data: bytes, tensor_data: Callable[[str, int], bytes]) -> Any:
    """Decode the model of two files; the second is read after the first was checked.

    `tensor_data` takes the name of the file and the largest number of bytes it may have.
    """
    with named(folder / RECORD):
        record = _record(record_data)
        model = _unfilled(record)
        shapes = _implied(model, record)
        name = tensors_name(record["sha256"])
    with named(folder / name):
        data = tensor_data(name, _most_bytes(shapes))
        same = hashlib.sha256(data).hexdigest() == record["sha256"]
        require(same, f"its contents are not those that {RECORD} was written with")
        arrays = _arrays(data, shapes)
        form_of(model).take(model, arrays)
        model.candidate_losses_ = arrays.get("candidate_losses")
        model.penalty_weights_ = arrays.get("penalty_weights")
        model.target_scaling_ = read_scaling(arrays, "target")
        mean, scale = read_scaling(arrays, "densities.units")
        densities = Densities(
            form=Mixture(record["components"]),
            parameters=arrays["densities"],
            mean=mean,
            scale=scale,
            n_environments=model.n_environments_,
        )
        classes = isinstance(model, Classifier)
        model.known_ = decode_known(arrays["known"], model.n_environments_, classes)
        model.ranges_ = decode_ranges(arrays["ranges"])
        model.left_out_ = decode_left_out(arrays.get("left_out"))
        tails = {name: _tail(arrays[name], record, name) for name in SPREADS if name in arrays}
    rare, outside = record["rare_threshold"], record["outside_threshold"]
    certainty = ConfidenceTails(tails["confidence"], tails["support"]) if classes else None
    model.evidence_ = Evidence(densities, tails["scores"], rare, outside, certainty=certainty)
    with named(folder / RECORD):
        return join_preprocessing(record.get("preprocessing"), model)


def _tail(arrays: np.ndarray, record: Mapping[str, Any], name: str) -> ScoreTail:
    """Decode a distribution of held-out rows."""
    scores, shares = arrays
    ascending = shares[0] > 0 and (np.diff(arrays) >= 0).all()
    require(bool(ascending), f"{name} must ascend")
    return ScoreTail.restore(scores, shares, record["tail_power"], record[SPREADS[name]])


def _record(data: bytes) -> dict[str, Any]:
    """Decode `model.json`; check its version, digest and entries."""
    try:
        record = json.loads(data)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"is not JSON ({error})") from error
    ours = isinstance(record, dict) and record.get("format") == FORMAT
    require(ours, f'has no entry "format": "{FORMAT}"')
    version, writer = record.get("format_version"), record.get("wri_version")
    if type(version) is int and version > VERSION:
        raise InputError(
            f"written by wri {writer!r:.40} in format {version}; wri {wri.__version__} reads "
            f"formats up to {VERSION}: pip install --upgrade weighted-risk-invariance"
        )
    if type(version) is int and 0 < version < VERSION:
        raise InputError(
            f"written by wri {writer!r:.40} in format {version}, which wri {wri.__version__} no "
            "longer reads: fit and save the model again"
        )
    require(version == VERSION, f"format_version must be {VERSION}, not {version!r:.40}")
    require(record.get("digest") == record_digest(record), "was changed after it was written")
    extras = {name: types for name, types in EXTRAS.items() if name in record}
    check_entries(record, {**ENTRIES, **extras}, "the file")
    check_sizes(record)
    return record


def _unfilled(record: Mapping[str, Any]) -> Any:
    """Make the model without its arrays."""
    name, features, names = record["estimator"], record["features"], record["feature_names"]
    require(name in ESTIMATORS, f"estimator {name!r:.40} is unknown")
    require(features > 0, f"{features} features are impossible")
    given = {key: value for key, value in record["parameters"].items() if key != UNREAD}
    model: Any = ESTIMATORS[name](**given)
    decode_parameters(model)
    check_parameters(model)
    trees = {entry for entry in TREE_ENTRIES if entry in record}
    check_names(trees, form_of(model).own_entries, "the file has entries")
    check_option("evidence_on", record["evidence_on"], model._sees)
    model.evidence_on_ = record["evidence_on"]
    model.n_features_in_ = features
    if BACKBONE in record:
        check_entries(record[BACKBONE], {"name": (str,), "digest": (str,)}, BACKBONE)
        model.backbone_ = record[BACKBONE]
    if SUMMARY in record:
        model.fit_summary_ = record[SUMMARY]
    if names is not None:
        fit = len(names) == features and {*map(type, names)} == {str}
        require(fit, f"feature_names must be {features} names")
        model.feature_names_in_ = np.array(names, dtype=object)
    model.environments_ = decode_labels(record["environments"], "environments", 1)
    model.n_environments_ = len(model.environments_)
    if isinstance(model, Classifier):
        model.classes_ = decode_labels(record["classes"] or {}, "classes", 2)
    else:
        require(record["classes"] is None, "a regressor has no classes")
    form_of(model).prepare(model, record)
    numbers = {*map(type, model.spec_.hyper.values())} <= {int, float}
    require(numbers, "spec.hyper must hold numbers")
    model.selection_, model.n_held_out_ = record["selection"], record["held_out_rows"]
    return model


def _implied(model: Any, record: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor that the record implies; check the evidence's numbers."""
    components, rows = record["components"], record["calibrating_rows"]
    require(components > 0 and 0 < record["tail_power"] < rows, "the evidence is out of range")
    rare, outside = record["rare_threshold"], record["outside_threshold"]
    tails = [name for name in SPREADS if name == "scores" or isinstance(model, Classifier)]
    spreads = [record[SPREADS[name]] for name in tails]
    right = -math.inf < outside <= rare < math.inf
    right = right and all(each is not None and 0 < each < math.inf for each in spreads)
    require(right, "thresholds must be numbers, and outside <= rare")
    outputs, form = model._n_outputs or 1, form_of(model)
    widths = form.widths_seen(model, record) | {"outputs": outputs - isinstance(model, Classifier)}
    seen = widths[model.evidence_on_]
    implied = form.shapes(model, record) | {
        "target": (2,),
        "densities.units": (2, seen),
        "densities": (Mixture(components)._packing(model.n_environments_, seen).size,),
        **dict.fromkeys(tails, (2, rows)),
        "known": (model.n_held_out_, outputs + 3),  # predictions, loss, environment, share
        "ranges": (2, model.n_features_in_),
    }
    if record["left_out"]:
        implied["left_out"] = (2, model.n_environments_)
    if record["candidates"] is not None:
        implied["candidate_losses"] = (record["candidates"], model.n_environments_)
        if "penalty_weight" in model.spec_.hyper:
            implied["penalty_weights"] = (record["candidates"],)
    return implied


def _most_bytes(implied: Mapping[str, tuple[int, ...]]) -> int:
    """Return the largest size of a file with these tensors, before it is read."""
    numbers = sum(math.prod(shape) for shape in implied.values())
    return min(LARGEST["tensors"], 8 * numbers + LARGEST_HEADER + 8)


def _arrays(data: bytes, implied: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
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

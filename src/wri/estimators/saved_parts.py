"""Parts of a fitted estimator that are saved: constructor arguments, specification, numbers."""

import re
from dataclasses import replace
from typing import Any

import numpy as np

from wri.errors import InputError
from wri.estimators.column_records import UNREAD
from wri.estimators.model_record import as_json
from wri.estimators.saved_predictors import form_of
from wri.estimators.specs import plain_parameter
from wri.training import ModelSpec


def parameters_record(model: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return constructor arguments for JSON, and descriptions of those without a JSON form."""
    kept, lost = {}, {}
    for key, value in model.get_params(deep=False).items():
        if key == UNREAD:
            continue
        try:
            kept[key] = as_json(plain_parameter(value))
        except (TypeError, ValueError):
            lost[key] = _describe(value)
    return kept, lost


def model_tensors(model: Any) -> dict[str, np.ndarray]:
    """Return all numbers of a model."""
    densities, tail = model.evidence_.densities, model.evidence_.tail
    certainty = model.evidence_.certainty
    arrays = {
        **form_of(model).tensors(model),
        "target": np.stack(model.target_scaling_),
        "densities.units": np.stack([densities.mean, densities.scale]),
        "densities": densities.parameters,
        "scores": np.stack([tail.scores, tail.shares]),  # of the rows that set thresholds
        "known": np.column_stack(model.known_),
        "ranges": np.stack(model.ranges_),
        "left_out": None if model.left_out_ is None else np.stack(model.left_out_),
        "candidate_losses": model.candidate_losses_,
        "penalty_weights": model.penalty_weights_,
    }
    for name, each in zip(("confidence", "support"), certainty or (), strict=False):
        arrays[name] = np.stack([each.scores, each.shares])
    # in C order, which safetensors expects
    given = {name: array for name, array in arrays.items() if array is not None}
    tensors = {
        name: np.array(array, np.uint8 if array.dtype == np.uint8 else np.float64, order="C")
        for name, array in given.items()
    }
    if isinstance(getattr(model, "state_", None), np.ndarray):
        tensors["state"] = np.array(model.state_, order="C")
    return tensors


def feature_names(model: Any) -> list[str] | None:
    """Return the names of the columns, if they are known."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else names.tolist()


def spec_record(spec: ModelSpec) -> tuple[dict[str, Any], dict[str, str]]:
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

"""What was fitted, in a saved model: the predictor and the evidence.

The predictor is the weights of a network, or the text of forests, kept as bytes in the file of
tensors under the same checksum. The evidence is densities, thresholds, and what held-out rows and
sites told.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from wri.boosting import ColumnView, Trees, TreeSpec
from wri.boosting.model_text import MOST_BYTES
from wri.densities import Mixture
from wri.estimators.base import Classifier
from wri.estimators.trees import LARGEST_CODE, TreeEstimator
from wri.ood.evidence import ConfidenceTails, Densities, Evidence, ScoreTail
from wri.ood.held_out import ColumnRanges, HeldOutRows, LeftOutSites
from wri.rows import Scaling
from wri.saving.folder import require
from wri.saving.values import Types, check_entries, check_names, decode_labels, encode_labels
from wri.stacked import Network
from wri.training import ModelSpec

# forests: bytes of each text
TREE_ENTRIES: Mapping[str, Types] = {
    "forests": (list,),
    "columns": (dict,),
    "erm_importances": (bool,),
}
COLUMN_ENTRIES: Mapping[str, Types] = {
    "categorical": (list,),
    "categories": (dict,),
    "codes": (int,),
}
Shapes = dict[str, tuple[int, ...]]
Widths = dict[str, int]  # columns that the evidence sees of "x" and "phi"
Arrays = Mapping[str, np.ndarray]
SPREADS = {"scores": "tail_spread", "confidence": "confidence_spread", "support": "support_spread"}
"""Distributions of held-out rows and the entries of their spreads; the last two of classifiers."""


def encode_fitted(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the entries of the record and the tensors; None for a tensor that is not there."""
    entries, tensors = _encode_evidence(model)
    if isinstance(model, TreeEstimator):
        own_entries, own_tensors = _encode_trees(model)
    else:
        own_entries = {}
        own_tensors = {"parameters": model.parameters_, "input": np.stack(model.input_scaling_)}
    candidates = {
        "candidate_losses": model.candidate_losses_,
        "penalty_weights": model.penalty_weights_,
    }
    return {**entries, **own_entries}, {**own_tensors, **tensors, **candidates}


def prepare_fitted(model: Any, record: Mapping[str, Any]) -> Shapes:
    """Set what the record holds of the predictor; return the shape of each implied tensor."""
    trees = isinstance(model, TreeEstimator)
    own = {entry for entry in TREE_ENTRIES if entry in record}
    check_names(own, TREE_ENTRIES if trees else (), "the file has entries")
    shapes, widths = (_prepare_trees if trees else _prepare_network)(model, record)
    shapes |= _evidence_shapes(model, record, widths)
    if record["candidates"] is not None:
        shapes["candidate_losses"] = (record["candidates"], model.n_environments_)
        if "penalty_weight" in model.spec_.hyper:
            shapes["penalty_weights"] = (record["candidates"],)
    return shapes


def fill_fitted(model: Any, record: Mapping[str, Any], arrays: Arrays) -> None:
    """Set the tensors; check that their values are possible."""
    if isinstance(model, TreeEstimator):
        _fill_trees(model, arrays)
    else:
        model.parameters_, model.state_ = arrays["parameters"], arrays.get("state")
        model.input_scaling_ = _read_scaling(arrays, "input")
    _fill_evidence(model, record, arrays)
    model.candidate_losses_ = arrays.get("candidate_losses")
    model.penalty_weights_ = arrays.get("penalty_weights")


def _encode_trees(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    texts = [text.encode() for text in model.trees_.texts]
    categories = {k: encode_labels(v, f"column {k!r}") for k, v in model.categories_.items()}
    columns = {
        "categorical": list(model.categorical_),
        "categories": categories,
        "codes": len(model.view_.codes),
    }
    importances = model.erm_importances_ is not None
    entries = {"forests": [*map(len, texts)], "columns": columns, "erm_importances": importances}
    return entries, {
        **{f"forest.{place}": np.frombuffer(text, np.uint8) for place, text in enumerate(texts)},
        "start": model.trees_.start,
        "input": np.stack(model.view_.scaling),
        "codes": model.view_.codes,
        "importances": model.feature_importances_,
        "erm_importances": model.erm_importances_,
    }


def _read_scaling(arrays: Arrays, name: str) -> Scaling:
    """Return the mean and the scale stored under a name."""
    mean, scale = arrays[name]
    require(bool((scale > 0).all()), f"{name} must have positive scales")
    return Scaling(mean, scale)


def _prepare_network(model: Any, record: Mapping[str, Any]) -> tuple[Shapes, Widths]:
    model.spec_ = spec = ModelSpec.from_dict(record["spec"])
    whole = spec.hidden is not None and all(type(width) is int for width in spec.hidden)
    require(whole, "spec must name the hidden layers")
    widths = (model.n_features_in_, *(spec.hidden or ()), model._n_outputs or 1)
    model.network_, state = Network(widths), record["state"]
    shapes: Shapes = {"parameters": (model.network_.packing.size,), "input": (2, widths[0])}
    if state is not None:
        whole = all(type(length) is int and length >= 0 for length in state)
        require(whole, "state must be a shape")
        shapes["state"] = tuple(state)
    return shapes, {"x": widths[0], "phi": widths[-2]}


def _prepare_trees(model: Any, record: Mapping[str, Any]) -> tuple[Shapes, Widths]:
    model.spec_ = TreeSpec.from_dict(record["spec"])
    columns, sizes, features = record["columns"], record["forests"], model.n_features_in_
    check_entries(columns, COLUMN_ENTRIES, "columns")
    places, codes = columns["categorical"], columns["codes"]
    right = all(type(place) is int and 0 <= place < features for place in places)
    require(right and places == sorted(set(places)), "categorical must be columns in order")
    model.categorical_ = tuple(places)
    model.categories_ = {
        name: decode_labels(labels, f"categories of {name!r:.40}", 1)
        for name, labels in columns["categories"].items()
    }
    there = set(model.categories_) <= {*getattr(model, "feature_names_in_", ())}
    require(there, "categories must be those of columns")
    possible = all(type(size) is int and size > 0 for size in sizes)
    require(possible and len(sizes) in (1, 2), "there must be one forest or two")
    require(sum(sizes) <= MOST_BYTES, f"forests of {sum(sizes):,} bytes are too large")
    require(0 <= codes <= features * LARGEST_CODE, "codes are out of range")
    seen, classes = features - len(places) + codes, model._n_outputs
    shapes: Shapes = {
        **{f"forest.{place}": (size,) for place, size in enumerate(sizes)},
        "start": (1 if classes in (None, 2) else classes,),
        "input": (2, seen),
        "codes": (codes, 2),
        "importances": (features,),
    }
    if record["erm_importances"]:
        shapes["erm_importances"] = (features,)
    return shapes, {"x": seen}


def _fill_trees(model: Any, arrays: Arrays) -> None:
    features, codes = model.n_features_in_, arrays["codes"]
    known = [place in model.categorical_ and code >= 0 for place, code in codes.tolist()]
    require(all(known), "codes must be those of categorical columns")
    numbers = np.setdiff1d(np.arange(features), np.array(model.categorical_, int))
    model.view_ = ColumnView(numbers, codes, _read_scaling(arrays, "input"))
    texts = [arrays[name] for name in sorted(arrays) if name.startswith("forest.")]
    decoded = [text.tobytes().decode("ascii") for text in texts]
    model.trees_ = Trees.read(decoded, arrays["start"], features)
    model.feature_importances_ = arrays["importances"]
    model.erm_importances_ = arrays.get("erm_importances")


def _encode_evidence(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    evidence = model.evidence_
    tails: dict[str, ScoreTail] = dict(
        zip(SPREADS, (evidence.tail, *(evidence.certainty or ())), strict=False)
    )
    entries = {
        "rare_threshold": float(evidence.rare),
        "outside_threshold": float(evidence.outside),
        "components": evidence.densities.form.components,
        "calibrating_rows": len(evidence.tail.scores),
        "ranged_rows": model.ranges_.rows,
        "tail_power": int(evidence.tail.power),
        **{
            entry: float(tails[name].spread) if name in tails else None
            for name, entry in SPREADS.items()
        },
    }
    return entries, {
        "target": np.stack(model.target_scaling_),
        "densities.units": np.stack([evidence.densities.mean, evidence.densities.scale]),
        "densities": evidence.densities.parameters,
        "known": np.column_stack(model.held_out_),
        "ranges": np.stack(model.ranges_[:2]),
        "left_out": None if model.left_out_ is None else np.stack(model.left_out_),
        **{name: np.stack([tail.scores, tail.shares]) for name, tail in tails.items()},
    }


def _evidence_shapes(model: Any, record: Mapping[str, Any], widths: Widths) -> Shapes:
    """Return the shape of each tensor of the evidence; check the numbers of the record."""
    components, rows = record["components"], record["calibrating_rows"]
    require(components > 0 and 0 < record["tail_power"] < rows, "the evidence is out of range")
    rare, outside = record["rare_threshold"], record["outside_threshold"]
    classifies, environments = isinstance(model, Classifier), model.n_environments_
    tails = [name for name in SPREADS if name == "scores" or classifies]
    spreads = [record[SPREADS[name]] for name in tails]
    right = -math.inf < outside <= rare < math.inf
    right = right and all(each is not None and 0 < each < math.inf for each in spreads)
    require(right, "thresholds must be numbers, and outside <= rare")
    outputs = model._n_outputs or 1
    seen = {**widths, "outputs": outputs - classifies}[model.evidence_on_]
    return {
        "target": (2,),
        "densities.units": (2, seen),
        "densities": (Mixture(components)._packing(environments, seen).size,),
        "known": (model.n_held_out_, outputs + 3),  # predictions, loss, environment, share
        "ranges": (2, model.n_features_in_),
        **({"left_out": (2, environments)} if record["left_out"] else {}),
        **dict.fromkeys(tails, (2, rows)),
    }


def _fill_evidence(model: Any, record: Mapping[str, Any], arrays: Arrays) -> None:
    model.target_scaling_ = _read_scaling(arrays, "target")
    mean, scale = _read_scaling(arrays, "densities.units")
    form, fitted = Mixture(record["components"]), arrays["densities"]
    sites = model.n_environments_
    densities = Densities(
        form=form, parameters=fitted, mean=mean, scale=scale, n_environments=sites
    )
    model.held_out_ = _decode_held_out(arrays["known"], model)
    (low, high), rows = arrays["ranges"], record["ranged_rows"]
    require(bool((low <= high).all()) and rows > 0, "ranges must have low <= high, of some rows")
    model.ranges_ = ColumnRanges(low, high, rows)
    left_out = arrays.get("left_out")  # [2, E]
    possible = left_out is None or (left_out.shape[1] > 2 and bool((left_out >= 0).all()))
    require(possible, "left_out holds impossible values")
    model.left_out_ = None if left_out is None else LeftOutSites(*left_out)
    tail, *certainty = [_decode_tail(record, arrays, name) for name in SPREADS if name in arrays]
    rare, outside = record["rare_threshold"], record["outside_threshold"]
    tails = ConfidenceTails(*certainty) if certainty else None
    model.evidence_ = Evidence(densities, tail, rare, outside, certainty=tails)


def _decode_tail(record: Mapping[str, Any], arrays: Arrays, name: str) -> ScoreTail:
    scores, shares = arrays[name]
    ascending = shares[0] > 0 and (np.diff(arrays[name]) >= 0).all()
    require(bool(ascending), f"{name} must ascend")
    return ScoreTail(scores, shares, record["tail_power"], record[SPREADS[name]])


def _decode_held_out(array: np.ndarray, model: Any) -> HeldOutRows:
    predictions, (losses, environment, shares) = array[:, :-3], array[:, -3:].T
    number = environment.astype(int)
    possible = (
        (number == environment).all()
        and ((number >= 0) & (number < model.n_environments_)).all()
        and (losses >= 0).all()
        and (shares > 0).all()
        and (len(array) == 0 or abs(shares.sum() - 1) < 1e-6)
    )
    if isinstance(model, Classifier):
        possible = possible and ((predictions >= 0) & (predictions <= 1)).all()
    require(bool(possible), "known holds impossible values")
    return HeldOutRows(predictions, losses, number, shares)

"""The evidence in a saved model: densities, thresholds, and what held-out rows and sites told."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from wri.densities import Mixture
from wri.estimators.derived import Classifier
from wri.ood.evidence import ConfidenceTails, Densities, Evidence, ScoreTail
from wri.ood.held_out import ColumnRanges, HeldOutRows, LeftOutSites
from wri.saving.folder import require
from wri.saving.predictors import Implied, Shapes, read_scaling

SPREADS = {
    "scores": "tail_spread",
    "confidence": "confidence_spread",
    "support": "support_spread",
}
"""Distributions of held-out rows and the entries of their spreads; the last two of classifiers."""


def encode_evidence(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the entries of the record and the tensors; None for a tensor that is not there."""
    evidence = model.evidence_
    tails: dict[str, ScoreTail] = dict(
        zip(SPREADS, (evidence.tail, *(evidence.certainty or ())), strict=False)
    )
    entries = {
        "rare_threshold": float(evidence.rare),
        "outside_threshold": float(evidence.outside),
        "components": evidence.densities.form.components,
        "calibrating_rows": len(evidence.tail.scores),
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
        "ranges": np.stack(model.ranges_),
        "left_out": None if model.left_out_ is None else np.stack(model.left_out_),
        **{name: np.stack([tail.scores, tail.shares]) for name, tail in tails.items()},
    }


def implied_shapes(model: Any, record: Mapping[str, Any], predictor: Implied) -> Shapes:
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
    seen = {**predictor.widths_seen, "outputs": outputs - classifies}[model.evidence_on_]
    return {
        "target": (2,),
        "densities.units": (2, seen),
        "densities": (Mixture(components)._packing(environments, seen).size,),
        "known": (model.n_held_out_, outputs + 3),  # predictions, loss, environment, share
        "ranges": (2, model.n_features_in_),
        **({"left_out": (2, environments)} if record["left_out"] else {}),
        **dict.fromkeys(tails, (2, rows)),
    }


def fill_evidence(model: Any, record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Set the tensors of the evidence; check that their values are possible."""
    model.target_scaling_ = read_scaling(arrays, "target")
    mean, scale = read_scaling(arrays, "densities.units")
    densities = Densities(
        form=Mixture(record["components"]),
        parameters=arrays["densities"],
        mean=mean,
        scale=scale,
        n_environments=model.n_environments_,
    )
    model.held_out_ = _decode_held_out(arrays["known"], model)
    model.ranges_ = ColumnRanges(*arrays["ranges"])
    require(bool(np.less_equal(*model.ranges_).all()), "ranges must have low <= high")
    left_out = arrays.get("left_out")  # [2, E]
    possible = left_out is None or (left_out.shape[1] > 2 and bool((left_out >= 0).all()))
    require(possible, "left_out holds impossible values")
    model.left_out_ = None if left_out is None else LeftOutSites(*left_out)
    tail, *certainty = [_decode_tail(record, arrays, name) for name in SPREADS if name in arrays]
    model.evidence_ = Evidence(
        densities,
        tail,
        record["rare_threshold"],
        record["outside_threshold"],
        certainty=ConfidenceTails(*certainty) if certainty else None,
    )


def _decode_tail(
    record: Mapping[str, Any], arrays: Mapping[str, np.ndarray], name: str
) -> ScoreTail:
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

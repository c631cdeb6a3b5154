"""The predictor in a saved model: the weights of a network, or the text of forests.

The text of a forest is kept as bytes in the file of tensors, under the same checksum.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from wri.boosting import ColumnView, Trees, TreeSpec
from wri.boosting.model_text import MOST_BYTES
from wri.estimators.trees import LARGEST_CODE, TreeEstimator
from wri.rows import Scaling
from wri.saving.folder import require
from wri.saving.values import Types, check_entries, check_names, decode_labels, encode_labels
from wri.stacked import Network
from wri.training import ModelSpec

TREE_ENTRIES: Mapping[str, Types] = {
    "forests": (list,),  # bytes of each text
    "columns": (dict,),
    "erm_importances": (bool,),
}
COLUMN_ENTRIES: Mapping[str, Types] = {
    "categorical": (list,),
    "categories": (dict,),
    "codes": (int,),
}


Shapes = dict[str, tuple[int, ...]]


class Implied(NamedTuple):
    """What a record implies of the predictor's tensors."""

    shapes: Shapes
    widths_seen: dict[str, int]  # columns that the evidence sees of "x" and "phi"


def encode_predictor(model: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the predictor's own entries of the record and its tensors."""
    if not isinstance(model, TreeEstimator):
        return {}, {"parameters": model.parameters_, "input": np.stack(model.input_scaling_)}
    texts = [text.encode() for text in model.trees_.texts]
    categories = {
        name: encode_labels(labels, f"column {name!r}")
        for name, labels in model.categories_.items()
    }
    entries = {
        "forests": [*map(len, texts)],
        "columns": {
            "categorical": list(model.categorical_),
            "categories": categories,
            "codes": len(model.view_.codes),
        },
        "erm_importances": model.erm_importances_ is not None,
    }
    return entries, {
        **{f"forest.{place}": np.frombuffer(text, np.uint8) for place, text in enumerate(texts)},
        "start": model.trees_.start,
        "input": np.stack(model.view_.scaling),
        "codes": model.view_.codes,
        "importances": model.feature_importances_,
        "erm_importances": model.erm_importances_,
    }


def prepare_predictor(model: Any, record: Mapping[str, Any]) -> Implied:
    """Set what the record holds of the predictor; return what it implies."""
    trees = isinstance(model, TreeEstimator)
    own = {entry for entry in TREE_ENTRIES if entry in record}
    check_names(own, TREE_ENTRIES if trees else (), "the file has entries")
    return (_prepare_trees if trees else _prepare_network)(model, record)


def fill_predictor(model: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Set the tensors of the predictor."""
    (_fill_trees if isinstance(model, TreeEstimator) else _fill_network)(model, arrays)


def read_scaling(arrays: Mapping[str, np.ndarray], name: str) -> Scaling:
    """Return the mean and the scale stored under a name."""
    mean, scale = arrays[name]
    require(bool((scale > 0).all()), f"{name} must have positive scales")
    return Scaling(mean, scale)


def _prepare_network(model: Any, record: Mapping[str, Any]) -> Implied:
    model.hidden = None if model.hidden is None else tuple(model.hidden)
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
    return Implied(shapes, {"x": widths[0], "phi": widths[-2]})


def _fill_network(model: Any, arrays: Mapping[str, np.ndarray]) -> None:
    model.parameters_, model.state_ = arrays["parameters"], arrays.get("state")
    model.input_scaling_ = read_scaling(arrays, "input")


def _prepare_trees(model: Any, record: Mapping[str, Any]) -> Implied:
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
    return Implied(shapes, {"x": seen})


def _fill_trees(model: Any, arrays: Mapping[str, np.ndarray]) -> None:
    features, codes = model.n_features_in_, arrays["codes"]
    known = [place in model.categorical_ and code >= 0 for place, code in codes.tolist()]
    require(all(known), "codes must be those of categorical columns")
    numbers = np.setdiff1d(np.arange(features), np.array(model.categorical_, int))
    model.view_ = ColumnView(numbers, codes, read_scaling(arrays, "input"))
    texts = [arrays[name] for name in sorted(arrays) if name.startswith("forest.")]
    decoded = [text.tobytes().decode("ascii") for text in texts]
    model.trees_ = Trees.read(decoded, arrays["start"], features)
    model.feature_importances_ = arrays["importances"]
    model.erm_importances_ = arrays.get("erm_importances")

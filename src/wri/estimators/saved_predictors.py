"""The predictor in a saved model: the weights of a network, or the text of forests.

Each form names its entries of the record and its tensors, and refuses impossible ones. The text of
a forest is kept as bytes in the file of tensors, under the same checksum.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from wri.boosting import ColumnView, Trees, TreeSpec
from wri.boosting.model_text import MOST_BYTES
from wri.estimators.boosted import TreeEstimator
from wri.estimators.model_folder import require
from wri.estimators.model_record import Types, check_entries, decode_labels, encode_labels
from wri.estimators.tree_columns import LARGEST_CODE
from wri.rows import Scaling
from wri.stacked import Network
from wri.training import ModelSpec
from wri.training.spec import decode_option

Shapes = dict[str, tuple[int, ...]]
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


class PredictorForm(Protocol):
    """Form in which the predictor of an estimator is saved."""

    own_entries: tuple[str, ...]  # entries of the record that only this predictor has

    def entries(self, model: Any) -> dict[str, Any]:
        """Return its own entries of the record."""
        ...

    def tensors(self, model: Any) -> dict[str, Any]:
        """Return its own tensors; None for one that is not there."""
        ...

    def prepare(self, model: Any, record: Mapping[str, Any]) -> None:
        """Set what the record holds of the predictor."""
        ...

    def shapes(self, model: Any, record: Mapping[str, Any]) -> Shapes:
        """Return the shape of each tensor after `prepare`."""
        ...

    def widths_seen(self, model: Any, record: Mapping[str, Any]) -> dict[str, int]:
        """Return the number of columns that the evidence sees of "x" and "phi"."""
        ...

    def take(self, model: Any, arrays: Mapping[str, np.ndarray]) -> None:
        """Set the tensors of the predictor."""
        ...


def read_scaling(arrays: Mapping[str, np.ndarray], name: str) -> Scaling:
    """Return the mean and the scale stored under a name."""
    mean, scale = arrays[name]
    require(bool((scale > 0).all()), f"{name} must have positive scales")
    return Scaling(mean, scale)


def decode_parameters(model: Any) -> None:
    """Decode options and candidates of the constructor from JSON."""
    if isinstance(model.options, dict):
        model.options = {key: decode_option(value) for key, value in model.options.items()}
    if isinstance(model.candidates, list):
        model.candidates = [_candidate(each) for each in model.candidates]


def _candidate(entries: Any) -> Any:
    """Decode one candidate of the constructor's parameters."""
    if not isinstance(entries, dict):
        return entries
    found = {key: decode_option(value) for key, value in entries.items()}
    if isinstance(found.get("hidden"), list):
        found["hidden"] = tuple(found["hidden"])
    return found


class _NetworkForm:
    """Weights, units of the inputs, and the state of the objective."""

    own_entries: tuple[str, ...] = ()

    def entries(self, model: Any) -> dict[str, Any]:
        return {}

    def tensors(self, model: Any) -> dict[str, Any]:
        return {"parameters": model.parameters_, "input": np.stack(model.input_scaling_)}

    def prepare(self, model: Any, record: Mapping[str, Any]) -> None:
        model.hidden = None if model.hidden is None else tuple(model.hidden)
        spec = ModelSpec.from_dict(record["spec"])
        whole = spec.hidden is not None and all(type(width) is int for width in spec.hidden)
        require(whole, "spec must name the hidden layers")
        model.spec_ = spec
        widths = (record["features"], *(spec.hidden or ()), model._n_outputs or 1)
        model.network_ = Network(widths)

    def shapes(self, model: Any, record: Mapping[str, Any]) -> Shapes:
        found: Shapes = {
            "parameters": (model.network_.packing.size,),
            "input": (2, model.n_features_in_),
        }
        if record["state"] is not None:
            whole = all(type(length) is int and length >= 0 for length in record["state"])
            require(whole, "state must be a shape")
            found["state"] = tuple(record["state"])
        return found

    def widths_seen(self, model: Any, record: Mapping[str, Any]) -> dict[str, int]:
        return {"x": model.network_.widths[0], "phi": model.network_.widths[-2]}

    def take(self, model: Any, arrays: Mapping[str, np.ndarray]) -> None:
        model.parameters_, model.state_ = arrays["parameters"], arrays.get("state")
        model.input_scaling_ = read_scaling(arrays, "input")


class _TreeForm:
    """Texts of forests, the score before the first tree, and the columns that densities see."""

    own_entries: tuple[str, ...] = tuple(TREE_ENTRIES)

    def entries(self, model: Any) -> dict[str, Any]:
        return {
            "forests": [len(text.encode()) for text in model.trees_.texts],
            "columns": {
                "categorical": list(model.categorical_),
                "categories": {
                    name: encode_labels(labels, f"column {name!r}")
                    for name, labels in model.categories_.items()
                },
                "codes": len(model.view_.codes),
            },
            "erm_importances": model.erm_importances_ is not None,
        }

    def tensors(self, model: Any) -> dict[str, Any]:
        texts = {
            f"forest.{place}": np.frombuffer(text.encode(), np.uint8)
            for place, text in enumerate(model.trees_.texts)
        }
        return {
            **texts,
            "start": model.trees_.start,
            "input": np.stack(model.view_.scaling),
            "codes": model.view_.codes,
            "importances": model.feature_importances_,
            "erm_importances": model.erm_importances_,
        }

    def prepare(self, model: Any, record: Mapping[str, Any]) -> None:
        model.spec_ = TreeSpec.from_dict(record["spec"])
        columns, features = record["columns"], model.n_features_in_
        check_entries(columns, COLUMN_ENTRIES, "columns")
        places = columns["categorical"]
        right = all(type(place) is int and 0 <= place < features for place in places)
        require(right and places == sorted(set(places)), "categorical must be columns in order")
        model.categorical_ = tuple(places)
        model.categories_ = {
            name: decode_labels(labels, f"categories of {name!r:.40}", 1)
            for name, labels in columns["categories"].items()
        }
        names = getattr(model, "feature_names_in_", np.array([])).tolist()
        there = all(name in names for name in model.categories_)
        require(there, "categories must be those of columns")
        sizes = record["forests"]
        possible = all(type(size) is int and size > 0 for size in sizes)
        require(possible and len(sizes) in (1, 2), "there must be one forest or two")
        require(sum(sizes) <= MOST_BYTES, f"forests of {sum(sizes):,} bytes are too large")
        require(0 <= columns["codes"] <= features * LARGEST_CODE, "codes are out of range")

    def shapes(self, model: Any, record: Mapping[str, Any]) -> Shapes:
        classes = model._n_outputs
        found: Shapes = {f"forest.{place}": (size,) for place, size in enumerate(record["forests"])}
        found |= {
            "start": (1 if classes in (None, 2) else classes,),
            "input": (2, self.widths_seen(model, record)["x"]),
            "codes": (record["columns"]["codes"], 2),
            "importances": (model.n_features_in_,),
        }
        if record["erm_importances"]:
            found["erm_importances"] = (model.n_features_in_,)
        return found

    def widths_seen(self, model: Any, record: Mapping[str, Any]) -> dict[str, int]:
        columns = record["columns"]
        return {"x": model.n_features_in_ - len(columns["categorical"]) + columns["codes"]}

    def take(self, model: Any, arrays: Mapping[str, np.ndarray]) -> None:
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


def form_of(model: Any) -> PredictorForm:
    """Return the form in which an estimator's predictor is saved."""
    return _TreeForm() if isinstance(model, TreeEstimator) else _NetworkForm()

"""State of an objective as named tensors, which a module keeps as buffers."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from torch import Tensor


def separate(state: Any, name: str = "state") -> tuple[Any, dict[str, Tensor]]:
    """Return a state with names in place of its tensors, and the tensors by name."""
    if state is None:
        return None, {}
    if isinstance(state, Tensor):
        return name, {name: state}
    names: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for field, value in _values(state).items():
        names[field], found = separate(value, f"{name}_{field}")
        tensors |= found
    return _with_values(state, names), tensors


def fill(shape: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the state again from the result of `separate`."""
    if shape is None:
        return None
    if isinstance(shape, str):
        return tensors[shape]
    return _with_values(shape, {name: fill(v, tensors) for name, v in _values(shape).items()})


def _values(state: Any) -> dict[str, Any]:
    """Return the fields of a named tuple or a data class."""
    if isinstance(state, tuple):
        return dict(state._asdict())  # type: ignore[attr-defined]
    return {field.name: getattr(state, field.name) for field in fields(state)}


def _with_values(state: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(state, tuple):
        return state._replace(**values)  # type: ignore[attr-defined]
    return replace(state, **values)

"""Type checks of an estimator's parameters, and its seed."""

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from wri.errors import LARGEST, InputError, check_size, shorten

Check = Callable[[Any], bool]
LARGEST_WHOLE = 2**31 - 1


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_number_or_auto(value: Any) -> bool:
    return _is_number(value) or value == "auto"


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _are_widths(value: Any) -> bool:
    return _is_list(value) and all(map(_is_whole, value))


def _is_named(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _are_candidates(value: Any) -> bool:
    return _is_list(value) and all(map(_is_named, value))


def _is_label(value: Any) -> bool:
    return isinstance(value, str | int)


OPTIONAL: Mapping[str, tuple[Check, str]] = {
    "environment": (_is_label, "the name of a column"),
    "hidden": (_are_widths, "a tuple of widths such as (32, 16)"),
    "steps": (_is_whole, "a whole number"),
    "stop_after": (_is_whole, "a whole number"),
    "penalty_weight": (_is_number_or_auto, "a number or 'auto'"),
    "learning_rate": (_is_number, "a number"),
    "weight_decay": (_is_number, "a number"),
    "batch_size": (_is_number, "a number"),
    "hyper": (_is_named, "a dict of numbers by name"),
    "options": (_is_named, "a dict of options by name"),
    "candidates": (_are_candidates, "a list of dicts"),
    "n_jobs": (_is_whole, "a whole number"),
}
"""Type of each parameter that may also be None, of the parameters that an estimator has."""
REQUIRED: Mapping[str, tuple[Check, str]] = {
    "validation_fraction": (_is_number, "a number"),
    "rare": (_is_number, "a number"),
    "outside": (_is_number, "a number"),
    "site_spread": (_is_flag, "True or False"),
    "compare_erm": (_is_flag, "True or False"),
}


def check_parameters(given: Any) -> None:
    """Refuse parameters of the wrong type by name; ranges are checked where they are used."""
    for name, (is_right, kind) in {**OPTIONAL, **REQUIRED}.items():
        if not hasattr(given, name):
            continue
        value = getattr(given, name)
        check_size(name, value, LARGEST_WHOLE if is_right is _is_whole else LARGEST)
        if (value is None and name in OPTIONAL) or is_right(value):
            continue
        shown = f"{shorten(repr(value))}, of the type {type(value).__name__}"
        raise InputError(f"{name} must be {kind}, not {shown}")
    for place, candidate in enumerate(given.candidates or ()):
        hidden = candidate.get("hidden")
        if not (hidden is None or _are_widths(hidden)):
            raise InputError(
                f"hidden in candidate {place} must be a tuple of widths such as (32, 16), not "
                f"{shorten(repr(hidden))}"
            )


def read_seed(random_state: Any) -> int:
    """Return an integer `random_state` as the seed; draw a seed from anything else."""
    try:
        random = check_random_state(random_state)
    except ValueError as error:
        shown = shorten(repr(random_state))
        raise InputError(
            f"random_state must be None, a RandomState or a whole number from 0 to {2**32 - 1}, "
            f"not {shown}"
        ) from error
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(random.randint(2**31 - 1))

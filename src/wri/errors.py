"""The error that users meet: what is wrong, where, and what to do about it."""

from collections.abc import Sequence


class InputError(ValueError):
    """Bad input. The message names the row, column or option and the remedy."""


def check_option(name: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")

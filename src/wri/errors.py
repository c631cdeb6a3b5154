"""The error for wrong input, and helpers for its messages."""

import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

LONGEST = 80  # characters of a label or path in a message
LARGEST = sys.float_info.max


class InputError(ValueError):
    """Error for wrong input. The message names the row, column or option and the remedy.

    Examples
    --------
    >>> from wri import InputError, ERMClassifier
    >>> try:
    ...     ERMClassifier(steps="many").fit([[0.0], [1.0]], [0, 1])
    ... except InputError as error:
    ...     print(error)
    steps must be a whole number, not 'many', of the type str
    """


class LostBackendError(RuntimeError):
    """Error for a back end that ended in the middle of its work; the input may be right."""


def check_option(name: str, value: object, allowed: Sequence[str]) -> None:
    """Refuse a value that is not among the allowed ones."""
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(allowed)}, not {shorten(repr(value))}")


def check_size(name: str, value: object, largest: float = LARGEST) -> None:
    """Refuse a whole number that is too large, by default for a float64."""
    if isinstance(value, int) and abs(value) > largest:
        raise InputError(f"{name} must lie between {-largest:g} and {largest:g}")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the nearest known name as the end of a sentence, or nothing."""
    near = get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def shorten(value: object) -> str:
    """Return a text of at most 80 characters for a message."""
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def listed(names: Iterable[object], most: int = 6) -> str:
    """List the first names for a message, in quotes, and the number of others."""
    quoted = [repr(shorten(name)) for name in names]
    more = f" and {len(quoted) - most} more" if len(quoted) > most else ""
    return ", ".join(quoted[:most]) + more

"""The error for wrong input, helpers for its messages, and warnings at the caller's line."""

import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import PurePath

LONGEST = 80  # characters of a label or path in a message
LARGEST = sys.float_info.max
BETWEEN = ("wri", "sklearn", "joblib")  # packages between a user's line and a warning
_given: set[tuple[str, str, int]] = set()


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


class MissingDataError(InputError):
    """Error for published data that are not on this machine and cannot be fetched."""


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
    """Return a text of at most 80 characters for a message; of a path, the end."""
    text = str(value)
    if len(text) <= LONGEST:
        return text
    is_path = isinstance(value, PurePath)
    return f"…{text[1 - LONGEST :]}" if is_path else f"{text[: LONGEST - 1]}…"


def listed(names: Iterable[object], most: int = 6) -> str:
    """List the first names for a message, in quotes, and the number of others."""
    quoted = [repr(shorten(name)) for name in names]
    more = f" and {len(quoted) - most} more" if len(quoted) > most else ""
    return ", ".join(quoted[:most]) + more


def warn_caller(text: str) -> None:
    """Warn at the user's line that called this package; by default once per line and text.

    Python keeps to once per line by itself, but not in cross-validation: scikit-learn renews the
    filters for every fold, which makes Python forget.
    """
    frame = sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] in BETWEEN:
        frame = frame.f_back
    module = str(frame.f_globals.get("__name__"))
    path, line = frame.f_code.co_filename, frame.f_lineno
    if (text, path, line) in _given and _find_action(text, module, line) == "default":
        return
    _given.add((text, path, line))
    warnings.warn_explicit(text, UserWarning, path, line, module)


def _find_action(text: str, module: str, line: int) -> str:
    """Return what the first filter that applies to a warning does with it."""
    for action, message, category, where, at in warnings.filters:
        applies = _is_match(message, text) and _is_match(where, module)
        if applies and issubclass(UserWarning, category) and at in (0, line):
            return action
    return "default"


def _is_match(pattern: re.Pattern[str] | str | None, text: str) -> bool:
    """Whether a part of a filter applies: Python's own filters hold texts, others patterns."""
    if isinstance(pattern, str):
        return pattern == text
    return pattern is None or pattern.match(text) is not None

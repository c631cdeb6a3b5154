"""The error that users meet: what is wrong, where, and what to do about it."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

LONGEST = 80  # characters of a label or path in a message


class InputError(ValueError):
    """Bad input. The message names the row, column or option and the remedy."""


def check_option(name: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(allowed)}, not {shorten(repr(value))}")


def suggest(name: str, known: Iterable[str]) -> str:
    """What somebody may have meant, as the end of a sentence; nothing where no name is near."""
    near = get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def shorten(value: object) -> str:
    """A text, or what prints as one, for a message: at most 80 characters."""
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"

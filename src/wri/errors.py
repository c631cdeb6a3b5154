"""The error that users meet: what is wrong, where, and what to do about it."""


class InputError(ValueError):
    """Bad input. The message names the row, column or option and the remedy."""

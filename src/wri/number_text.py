"""Numbers as text for people: a few significant digits, and all digits before the point."""

from math import floor, isfinite, log10

SMALLEST, LARGEST = 1e-4, 1e15  # beyond them with an exponent


def write_number(value: float, digits: int = 3, sign: bool = False) -> str:
    """Write a number with this many significant digits and all of its digits before the point.

    Zeros at the end of fractions are left out. With `sign` positive numbers have a plus.

    Examples
    --------
    >>> from wri.number_text import write_number
    >>> [write_number(value) for value in (0.00012, 0.2, 87.667, 110)]
    ['0.00012', '0.2', '87.7', '110']
    >>> write_number(99.6, digits=2), write_number(1234567.8), write_number(2.5e-9)
    ('100', '1234568', '2.5e-09')
    """
    plus = "+" if sign else ""
    size = abs(float(f"{value:.{digits - 1}e}"))  # rounded: 99.6 has three digits before the point
    if not isfinite(size) or not SMALLEST <= size < LARGEST:
        return f"{value:{plus}.{digits}g}"
    places = max(0, digits - 1 - floor(log10(size)))
    text = f"{value:{plus}.{places}f}"
    return text.rstrip("0").rstrip(".") if places else text


def write_percent(share: float, digits: int = 3) -> str:
    """Write a share as a percentage: 1.1 is "110 %"."""
    return f"{write_number(100 * share, digits)} %"


def write_share(share: float) -> str:
    """Write a share of rows in a table, with one decimal: 0.5 is "50.0 %"."""
    return f"{100 * share:.1f} %"


def write_loss(value: float, unit: str) -> str:
    """Write a loss in nats, or else as a share of the variance of the target."""
    if unit == "nats":
        return f"{write_number(value, 2)} nats"
    return f"{write_percent(value, 2)} of the variance of the target"

"""Numbers that people read have one form."""

import re
from pathlib import Path

import pytest

import wri
from wri.number_text import write_loss, write_number, write_percent, write_share


@pytest.mark.parametrize(
    ("value", "two", "three", "four"),
    [
        (0.00012, "0.00012", "0.00012", "0.00012"),
        (0.2, "0.2", "0.2", "0.2"),
        (87.667, "88", "87.7", "87.67"),
        (110, "110", "110", "110"),
        (99.6, "100", "99.6", "99.6"),
        (-1234.5, "-1234", "-1234", "-1234"),
        (0.0, "0", "0", "0"),
        (3.21e-12, "3.2e-12", "3.21e-12", "3.21e-12"),
        (float("nan"), "nan", "nan", "nan"),
        (float("inf"), "inf", "inf", "inf"),
    ],
)
def test_numbers_keep_the_digits_before_the_point(value, two, three, four):
    assert [write_number(value, digits) for digits in (2, 3, 4)] == [two, three, four]


def test_percentages_have_no_exponent():
    assert [write_percent(share, 2) for share in (0.0000012, 0.002, 0.87667, 1.1)] == [
        "0.00012 %",
        "0.2 %",
        "88 %",
        "110 %",
    ]
    assert [write_share(share) for share in (0.5, 0.0004, 1.0)] == ["50.0 %", "0.0 %", "100.0 %"]
    assert write_loss(1.1, "variance") == "110 % of the variance of the target"


def test_no_other_module_rounds_to_significant_digits():
    """`:.2g` writes 110 as 1.1e+02, so texts use `write_number`."""
    root = Path(wri.__file__).parent
    found = [
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if path.name != "number_text.py" and re.search(r"[:+>,\d]\.\dg\}", path.read_text())
    ]
    assert found == []

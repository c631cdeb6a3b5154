"""Encoded columns are called as people call them."""

from wri.datasets.schema import readable_names


def test_names_of_people():
    raw = ["bmi", "ward", "ward_type", "a_b"]
    encoded = ["bmi", "missingindicator_bmi", "ward_north", "ward_type_x", "a_b"]
    encoded += ["ward_infrequent_sklearn", "other"]
    assert readable_names(encoded, raw) == (
        "bmi",
        "bmi is missing",
        "ward = north",
        "ward_type = x",
        "a_b",
        "ward = a rare category",
        "other",
    )


def test_names_stay_where_two_would_be_the_same():
    raw = ["ward = north", "ward"]
    assert readable_names(["ward = north", "ward_north"], raw) == ("ward = north", "ward_north")

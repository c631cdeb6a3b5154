"""Results as text, as JSON and as a page."""

import json

import numpy as np
import pytest

from parsed_page import ParsedPage
from wri.paper.pages import write_results
from wri.paper.result import Result, ResultCell
from wri.report import style


def three(low, high):
    """Three values with the mean and the standard error of the two given ones."""
    middle, error = (low + high) / 2, (high - low) / 2
    return [middle - 3**0.5 * error, middle, middle + 3**0.5 * error]


def test_spread_is_the_standard_error():
    row = ResultCell.of("WRI", "accuracy", [1.0, 2.0, 3.0])
    assert (row.ours, row.n) == (2.0, 3)
    assert row.spread == pytest.approx(1 / 3**0.5)
    assert ResultCell.of("WRI", "accuracy", [1.0]).spread is None
    assert ResultCell.of("WRI", "accuracy", [1.0, 3.0]).text == "2"  # two are too few for ±


def test_differences_between_groups_are_no_spread():
    groups = [np.array([10.0, 12.0]), np.array([50.0, 52.0])]
    row = ResultCell.over_groups("a", "average", groups)
    assert (row.ours, row.n) == (31, 4)
    assert row.spread == pytest.approx((2 / 2 + 2 / 2) ** 0.5 / 2)  # s² = 2 in both


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([80.0, 81.0, 82.5], "81.17 ± 0.73"),
        ([0.5], "0.5"),
        (three(4e-5, 6e-5), "5.0e-05 ± 1e-05"),
        (three(1000.0, 3000.0), "2000 ± 1000"),
        (three(0.0012, 0.00126), "1.2e-03 ± 3e-05"),
        ([1234.0], "1234"),
        (three(2.0, 2.0), "2"),
    ],
)
def test_numbers_are_shown_to_the_spreads_second_digit(values, text):
    assert ResultCell.of("a", "b", values).text == text


def test_far_from_the_paper_is_three_standard_errors():
    near = ResultCell.of("a", "b", three(1.0, 3.0), printed=(5.0, 0.5))
    assert not near.far_from_paper
    assert ResultCell.of("a", "b", three(1.0, 3.0), printed=(5.01, None)).far_from_paper
    assert not ResultCell.of("a", "b", [1.0], printed=(50.0, None)).far_from_paper
    assert near.paper_text == "5 ± 0.5"


def test_what_is_not_finite_is_said_and_is_null_in_json():
    result = Result(
        experiment="x", rows=[ResultCell.of("a", "b", [1.0, np.nan])], figures=[], seconds=0.0
    )
    assert result.rows[0].text == "not finite"
    document = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert document["rows"][0]["ours"] is None


def example(folder):
    with style.figure(2, 2) as drawn:
        axes = drawn.subplots()
        axes.plot([0, 1], [0, 1])
        axes.set_xlabel("time")
    figures = style.save(drawn, folder, "figureX")
    rows = [
        ResultCell.of("ERM", "one & two", three(50.0, 51.0), "<first>", (40.0, 1.5)),
        ResultCell.of("WRI", "one & two", three(60.0, 61.0), "<first>", (60.4, None)),
        ResultCell.of("WRI", "three", [7.0], table="second"),
    ]
    return Result(
        experiment="figureX",
        rows=rows,
        figures=figures,
        seconds=1.25,
        notes=["a <note>"],
        repetitions="draws",
    )


def test_tables_follow_the_order_of_their_cells(tmp_path):
    first, second = example(tmp_path).tables
    assert (first.title, second.title) == ("<first>", "second")
    assert [line for line, _ in first.lines] == ["ERM", "WRI"]
    assert second.columns == ["three"]


def test_json_is_complete(tmp_path):
    document = json.loads(json.dumps(example(tmp_path).as_json()))
    assert set(document) == {"experiment", "rows", "figures", "seconds", "notes", "quick"}
    for row in document["rows"]:
        keys = {"algorithm", "column", "ours", "spread", "n", "paper", "paper_spread", "table"}
        assert set(row) == keys


def test_the_page_holds_everything_and_stands_alone(tmp_path):
    result = example(tmp_path)
    path = write_results([result], {"figureX": "about X"}, "wri reproduce figureX", tmp_path)
    page = ParsedPage(path.read_text())
    for expected in (
        "wri reproduce figureX",
        "About X. Mean ± standard error over 3 draws; single values where there is no ±. 1.2 s.",
        "<first>",
        "one & two",
        "50.50 ± 0.50",
        "paper 40 ± 1.5",
        "a <note>",
    ):
        assert expected in page.text
    assert "#figureX" in page.links
    assert page.alternatives == ["figureX: about X."]


def test_cells_far_from_the_paper_are_marked(tmp_path):
    path = write_results([example(tmp_path)], {"figureX": "about"}, "wri", tmp_path)
    page = ParsedPage(path.read_text())
    assert page.text.count("Attention: ") == 1
    assert "Attention: 50.50 ± 0.50 paper 40 ± 1.5" in page.text
    assert "more than 3 of our standard errors" in page.text


def test_what_is_shown_names_the_repetitions():
    assert (
        Result(
            experiment="x", rows=[ResultCell.of("a", "b", [1.0])], figures=[], seconds=0.0
        ).what_is_shown
        == "Single values."
    )
    rows = [ResultCell.of("a", "b", np.arange(4.0))]
    shown = Result(experiment="x", rows=rows, figures=[], seconds=0.0).what_is_shown
    assert shown == "Mean ± standard error over 4 seeds."

"""What holds for every page, read without a browser."""

import re
from io import BytesIO

import numpy as np
import pytest
from example_page import SCRIPT, SITES, make_page
from PIL import Image

from parsed_page import ParsedPage
from wri.report import style
from wri.report.page import (
    Notice,
    Page,
    PageCell,
    PagePicture,
    PageTable,
    Section,
    make_thumbnail,
    render_page,
    write_page,
)


@pytest.fixture(scope="module")
def html():
    return render_page(make_page())


@pytest.fixture(scope="module")
def parsed(html):
    return ParsedPage(html)


def page_of(*blocks):
    return Page(title="t", lead="l", sections=[Section(title="s", blocks=blocks)])


def draw(label="time"):
    with style.figure(2, 2) as drawn:
        axes = drawn.subplots()
        axes.plot([0, 1], [0, 1], "o", clip_on=True)
        axes.set_xlabel(label)
    return drawn


def test_equal_pages_are_equal_text():
    first, second = (
        render_page(page_of(PagePicture(figure=draw(), alternative="a", caption="c")))
        for _ in range(2)
    )
    assert first == second


def test_ids_occur_once_and_references_meet_them(html, parsed):
    assert len(parsed.ids) == len(set(parsed.ids))
    named = [
        word
        for _, given in parsed.elements
        for key in ("aria-labelledby", "aria-describedby")
        for word in given.get(key, "").split()
    ]
    clips = re.findall(r"url\(#([^)]+)\)", html)
    uses = [
        given[key][1:]
        for _, given in parsed.elements
        for key in ("href", "xlink:href")
        if given.get(key, "").startswith("#")
    ]
    assert clips
    assert uses
    assert {*named, *clips, *uses} <= set(parsed.ids)


def test_equal_images_in_a_figure_have_one_id():
    with style.figure(4, 2) as drawn:
        for axes in drawn.subplots(1, 2):
            axes.imshow(np.eye(2))
    page = ParsedPage(render_page(page_of(PagePicture(figure=drawn, alternative="a"))))
    assert len(page.named("image")) == 2
    assert len(page.ids) == len(set(page.ids))


def test_nothing_is_fetched_and_nothing_runs(html, parsed):
    sources = [
        given[key]
        for _, given in parsed.elements
        for key in ("src", "href", "xlink:href", "srcset", "action")
        if key in given
    ]
    assert all(each.startswith(("#", "data:image/")) for each in sources)
    assert not parsed.named("script")
    assert not parsed.named("link")
    assert not [key for _, given in parsed.elements for key in given if key.startswith("on")]
    assert not re.search(r"@import|url\((?!#)", html)


def test_names_stay_text_in_tables_and_in_figures(html, parsed):
    assert "<script" not in html.lower()
    assert parsed.text.count(SCRIPT) == 1  # the table's row
    assert parsed.text.count("<script>a") == 4  # and one for each labelled axis
    for site in SITES:
        assert site in parsed.text


@pytest.mark.parametrize("label", ["--> <b>x</b>", "\x0b\x01", "$x", "日本", "a & b", "]]>"])
def test_any_label_can_stand_in_a_figure(label):
    with style.figure(2, 2) as drawn:
        drawn.subplots().set_xlabel(label, parse_math=False)
    picture = PagePicture(figure=drawn, alternative=label, caption=label)
    page = ParsedPage(render_page(page_of(picture)))
    assert not page.named("b")
    if label.isprintable():
        assert page.alternatives == [label]
        assert page.text.count(label) == 2  # below the figure and in it


def test_headings_are_in_order(parsed):
    levels = [level for level, _ in parsed.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert max(np.diff(levels)) <= 1


def test_every_section_is_in_the_contents(parsed):
    sections = [given["id"] for given in parsed.named("section")]
    assert parsed.links == ["#content", *(f"#{each}" for each in sections)]
    assert len(sections) == len(make_page().sections)


def test_sections_of_one_name_and_without_letters_have_their_own_ids():
    sections = [Section(title=title, blocks=[]) for title in ("a b", "a b", "?", "content")]
    page = ParsedPage(render_page(Page(title="t", lead="l", sections=sections)))
    ids = [given["id"] for given in page.named("section")]
    assert ids == ["a-b", "a-b-2", "section", "content-2"]


def test_every_figure_has_a_text_alternative(parsed):
    figures = [given for given in parsed.named("svg") if given.get("role") == "img"]
    assert len(figures) == len(parsed.alternatives) == 3
    assert all(parsed.alternatives)
    assert all(given["alt"] for given in parsed.named("img"))


def test_wide_things_scroll_in_a_box_for_the_keyboard(parsed):
    boxes = [given for _, given in parsed.elements if "scroll" in given.get("class", "").split()]
    assert len(boxes) == len(parsed.named("table")) + 3 + 1  # figures, the command
    assert all(given["tabindex"] == "0" and given["role"] == "region" for given in boxes)
    labels = [given["aria-label"] for given in boxes]
    assert len(set(labels)) == len(labels)


def test_headers_of_tables_have_a_scope(parsed):
    assert {given["scope"] for given in parsed.named("th")} == {"col", "row"}


def test_numbers_are_aligned_to_the_right():
    table = PageTable(
        caption="c",
        columns=["", "number", "mixed", "words", "gap"],
        rows=[["1", "−0.5", "0.5", "a", "–"], ["2", PageCell("< 0.001"), "none", "b", "3 ± 1"]],
    )
    page = ParsedPage(render_page(page_of(table)))
    heads = [given.get("class") for given in page.named("th") if given["scope"] == "col"]
    assert heads == ["number", None, None, "number"]


def test_what_stands_out_is_also_said():
    table = PageTable(
        caption="c",
        columns=["a", "b"],
        rows=[["x", PageCell("0.9", best=True)], ["y", PageCell("0.1", tone="warning")]],
    )
    text = ParsedPage(render_page(page_of(Notice("Beware"), table))).text
    assert "Warning. Beware" in text
    assert "0.9 (best)" in text
    assert "Attention: 0.1" in text
    assert "s 1 warning" in text  # in the contents


def test_a_page_that_cannot_be_made_leaves_the_old_one(tmp_path):
    path = write_page(page_of("old"), tmp_path / "new" / "page.html")
    missing = PagePicture(figure=tmp_path / "missing.svg", alternative="a")
    with pytest.raises(FileNotFoundError):
        write_page(page_of(missing), path)
    assert "<p>old</p>" in path.read_text()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.slow
def test_equal_figures_are_equal_files(tmp_path):
    first = style.save(draw(), tmp_path / "1", "f")
    second = style.save(draw(), tmp_path / "2", "f")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_thumbnails_are_small():
    small = Image.open(BytesIO(make_thumbnail(Image.new("RGB", (200, 400)), 100)))
    assert (small.format, small.size) == ("JPEG", (50, 100))

"""The examples of the README, the start page and the guide's pages run and print what they show."""

import re
from pathlib import Path

import pytest

from pages import check_blocks, check_same, python_blocks, run_block, split_section
from wri.datasets.heart import where_heart

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
NEW_SITE = ROOT / "docs" / "new_site.md"
PAGES = (README, *(ROOT / "docs" / name for name in ("index.md", "guide.md", "boosting.md")))
EXAMPLES = [block for page in PAGES for block in python_blocks(page)]


@pytest.mark.parametrize(("code", "shown"), EXAMPLES)
@pytest.mark.slow
@pytest.mark.usefixtures("restored_registries")
def test_example_prints_what_it_shows(code, shown, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some examples save a model
    if "Boosting" in code:
        pytest.importorskip("lightgbm", reason="boosted trees need LightGBM ([boosting])")
    printed = run_block(code, {})
    if shown is not None:
        check_same(printed, shown)


@pytest.mark.slow
def test_the_page_of_a_new_site_prints_what_it_shows():
    simulated, _ = split_section(NEW_SITE, "Four real hospitals")
    check_blocks(simulated)


def test_the_page_of_a_new_site_shows_four_real_hospitals():
    if where_heart() is None:
        pytest.skip("the files of heart disease are not here (WRI_DATA)")
    _, real = split_section(NEW_SITE, "Four real hospitals")
    check_blocks(real)


def test_pages_are_compared_word_by_word_and_number_by_number():
    check_same("a loss of 0.531\nat most", "a loss of 0.53 at\nmost\n")
    for shown in ("a loss of 0.61 at most", "a gain of 0.53 at most", "a loss of 0.53"):
        with pytest.raises(AssertionError):
            check_same("a loss of 0.531 at most", shown)


def test_readme_shows_its_picture():
    for path in re.findall(r"!\[.*?\]\((.*?)\)", README.read_text()):
        assert (README.parent / path).exists()

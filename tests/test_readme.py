"""The examples of the README and of the documentation run and print what they show."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from pages import (
    check_blocks,
    check_excerpt,
    check_same,
    python_blocks,
    run_block,
    shell_commands,
    split_section,
)
from wri.datasets.heart import where_heart

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
NEW_SITE = DOCS / "howto" / "new_site.md"
DOMAINBED = DOCS / "howto" / "domainbed.md"  # tests/integrations/test_domainbed_page.py
WRITTEN = ("tutorial", "howto", "explanation", "results")
PAGES = [
    README,
    DOCS / "index.md",
    *(p for part in WRITTEN for p in sorted((DOCS / part).glob("*"))),
]
EXAMPLES = [
    pytest.param(code, shown, id=f"{page.stem} {number}")
    for page in PAGES
    if page.suffix == ".md" and page not in (NEW_SITE, DOMAINBED)
    for number, (code, shown) in enumerate(python_blocks(page), 1)
]


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


@pytest.mark.parametrize("name", ["hospitals", "heart"])
@pytest.mark.slow
def test_a_tutorial_prints_what_it_shows(name, tmp_path, command, monkeypatch):
    """Its commands run in order in an empty folder."""
    if name == "heart" and where_heart() is None:
        pytest.skip("the files of heart disease are not here (WRI_DATA)")
    commands = [*shell_commands((DOCS / "tutorial" / f"{name}.md").read_text())]
    assert len(commands) >= 5
    monkeypatch.setenv("COLUMNS", "80")
    for line, shown in commands:
        if line.startswith("wri "):  # in this process, which has PyTorch
            found = command(*shlex.split(line)[1:])
            assert found.returncode == 0
        else:
            found = subprocess.run(
                line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True
            )
        check_excerpt(found.stdout + found.stderr, shown)


def test_the_start_page_shows_lines_of_the_tutorial():
    """Every line of the answer on the start page is one that the tutorial's command prints."""
    answer = re.search(
        r"prints, among other things:\n```\n(.*?)```", (DOCS / "index.md").read_text(), re.DOTALL
    )[1]
    shown = "\n".join(
        shown for _, shown in shell_commands((DOCS / "tutorial" / "hospitals.md").read_text())
    )
    assert {*answer.splitlines()} <= {*shown.splitlines()}


def test_pages_are_compared_word_by_word_and_number_by_number():
    check_same("a loss of 0.531\nat most", "a loss of 0.53 at\nmost\n")
    for shown in ("a loss of 0.61 at most", "a gain of 0.53 at most", "a loss of 0.53"):
        with pytest.raises(AssertionError):
            check_same("a loss of 0.531 at most", shown)


def test_excerpts_leave_out_what_an_ellipsis_stands_for():
    printed = "rows 5\nloss 0.531\nother\nkept WRI"
    check_excerpt(printed, "rows 5\n…\nkept WRI\n")
    for shown in ("kept WRI\n…\nrows 5\n", "loss 0.7\n", "kept ERM\n"):
        with pytest.raises(AssertionError):
            check_excerpt(printed, shown)


def test_commands_are_read_with_their_output():
    text = "```\n$ wri a\none\n$ wri b\n```\nwords\n```\nmore\n```\n```\n$ wri c\nthree\n```\n"
    found = [(command, shown.split()) for command, shown in shell_commands(text)]
    assert found == [("wri a", ["one"]), ("wri b", ["…", "more", "…"]), ("wri c", ["three"])]


def test_readme_shows_its_picture():
    for path in re.findall(r"!\[.*?\]\((.*?)\)", README.read_text()):
        assert (README.parent / path).exists()

"""The pages for readers: links lead somewhere, and pages of results can be written anew."""

import ast
import re
from collections.abc import Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wri import cli
from wri.paper.experiments import EXPERIMENTS
from wri.paper.pages import WIDTH, check_pages

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(
        p
        for p in (ROOT / "docs").rglob("*.md")
        if not {"_build", "gallery", "reference"} & {*p.parts}
    ),
]
TABLES = (Mapping, tuple)
COMMANDS = (
    "fit",
    "predict",
    "site",
    "diagnose",
    "data",
    "sweep",
    "results export",
    "results import",
)
OUTPUTS = [name for each in EXPERIMENTS.values() for name in each.outputs]
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s]+)\)")


def without_code(page):
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)


def anchors(page):
    """Names of the headings, as GitHub and the site make them from a heading's text."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_to_files_and_headings_lead_somewhere(page):
    for link in LINK.findall(without_code(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in [*anchors(target)], link


def test_the_contents_of_the_results_name_every_page():
    linked = {path.partition("#")[0] for path in LINK.findall((RESULTS / "index.md").read_text())}
    assert {path.name for path in RESULTS.glob("*.md")} - {"index.md"} <= linked


def test_every_table_and_figure_has_a_page_that_can_be_written_anew():
    pages = {path.stem for path in RESULTS.glob("*.md")}
    assert set(OUTPUTS) - pages == {"table4"}  # it is a part of table E.4
    check_pages(RESULTS, OUTPUTS)
    for name in {*OUTPUTS} & pages:
        assert f"`wri reproduce {name} --full --seed " in (RESULTS / f"{name}.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_lines_wrap(page):
    printed = r"```.*?```|<!-- command .*?<!-- end of command -->|<!-- made -->.*"
    lines = re.sub(printed, "", page.read_text(), flags=re.DOTALL).splitlines()
    wide = [
        line for line in lines if not line.lstrip().startswith(("|", "![")) and len(line) > WIDTH
    ]
    assert [line for line in wide if " " in line.strip()] == []


@pytest.fixture(scope="module")
def reference():
    spec = spec_from_file_location("reference_pages", ROOT / "docs" / "reference_pages.py")
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_reference_has_every_package_with_public_names(reference):
    for path in (ROOT / "src").rglob("__init__.py"):
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if hasattr(node, "id")}
        package = ".".join(path.parent.relative_to(ROOT / "src").parts)
        internal = package in ("wri.paper.experiments", "wri.stacked")  # free to change
        assert ("__all__" in names and not internal) <= (package in reference.MODULES), package


def test_every_public_name_belongs_to_one_task_of_the_reference(reference):
    found = [name for names in reference.names_by_task().values() for name in names]
    public = {
        f"{module}.{name}"
        for module in reference.MODULES
        for name in reference.public_names(module)
    }
    assert sorted(found) == sorted(public)
    assert all(reference.names_by_task().values())


def test_every_table_of_the_package_has_a_line_in_the_reference(reference):
    found = {
        name
        for names in reference.names_by_task().values()
        for name in names
        if isinstance(
            getattr(import_module(name.rpartition(".")[0]), name.rpartition(".")[2]), TABLES
        )
    }
    assert found == {*reference.CONSTANTS}


def test_the_page_of_the_command_line_has_every_option(reference):
    page = reference.command_line_page()
    for command in COMMANDS:
        section = page.partition(f"\n## wri {command}\n")[2].partition("\n## ")[0]
        found = CliRunner().invoke(cli.app, [*command.split(), "--help"], env={"COLUMNS": "200"})
        options = {*re.findall(r"(?<=\s)--[a-z][a-z-]+", found.output)} - {"--help"}
        assert options, command
        assert {option for option in options if f"{option}`" not in section} == set(), command


def test_a_page_longer_than_two_screens_has_a_table_of_contents():
    for page in PAGES:
        text = re.sub(r"```{toctree}.*?```", "", page.read_text(), flags=re.DOTALL)
        is_long = len(text.splitlines()) > 120 and page.name not in ("README.md", "CHANGELOG.md")
        assert not is_long or len(re.findall(r"^- \[.*\]\(#", text, re.MULTILINE)) >= 2, page

"""What a release says about itself is true of the package."""

import re
import runpy
import tomllib
from pathlib import Path

import wri

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_version_is_the_same_everywhere(command):
    assert command("--version").stdout == f"wri {wri.__version__}\n"
    assert f"\nversion: {wri.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {wri.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert "version" not in PROJECT["project"]  # setuptools takes it from the module
    assert PROJECT["tool"]["setuptools"]["dynamic"] == {"version": {"attr": "wri.__version__"}}


def test_classifiers_claim_what_continuous_integration_runs():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    claimed = [line.split(" :: ") for line in PROJECT["project"]["classifiers"]]
    versions = {parts[-1] for parts in claimed if parts[0] == "Programming Language"} - {"3"}
    assert versions == {*re.findall(r'"(3\.\d+)"', workflow)}
    systems = {parts[-1] for parts in claimed if parts[0] == "Operating System"}
    assert {*re.findall(r"runs-on: (\S+)", workflow)} == {"ubuntu-latest"}
    assert systems == {"Linux"}


def test_links_of_readme_are_absolute_on_package_indexes():
    public_readme = runpy.run_path(str(ROOT / "setup.py"))["public_readme"]
    text = (
        "![Two\nsites](docs/a.png)\n\nSee [there](docs/b.md#c), [here](#d), [out](https://e.org).\n"
    )
    assert public_readme(text, "https://f.org/g", "1.0") == (
        "![Two\nsites](https://f.org/g/raw/v1.0/docs/a.png)\n\n"
        "See [there](https://f.org/g/blob/v1.0/docs/b.md#c), [here](#d), [out](https://e.org).\n"
    )
    assert public_readme(text, "", "1.0") == "See there, [here](#d), [out](https://e.org).\n"

"""The examples of the README, the start page and the guide run as they stand."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
EXAMPLES = [
    code
    for page in (README, ROOT / "docs" / "index.md", ROOT / "docs" / "guide.md")
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_example_runs(code):
    exec(compile(code, str(README), "exec"), {})


def test_readme_shows_its_picture():
    for path in re.findall(r"!\[.*?\]\((.*?)\)", README.read_text()):
        assert (README.parent / path).exists()

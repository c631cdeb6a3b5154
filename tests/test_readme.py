"""The README's examples run as they stand."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.mark.parametrize("code", EXAMPLES)
def test_example_runs(code):
    exec(compile(code, str(README), "exec"), {})


def test_readme_shows_its_picture():
    for path in re.findall(r"!\[.*?\]\((.*?)\)", README.read_text()):
        assert (README.parent / path).exists()

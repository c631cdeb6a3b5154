"""The Python blocks of a Markdown page, and the output that the page says they print."""

import io
import re
from contextlib import redirect_stdout

BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\n```text\n(?P<printed>.*?)```)?", re.DOTALL)
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")


def python_blocks(page):
    """The code of every block of a page, and what the page says it prints, if it says so."""
    return [(found["code"], found["printed"]) for found in BLOCK.finditer(page.read_text())]


def run_block(code, session):
    """What a block prints."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, "page", "exec"), session)
    return printed.getvalue()


def split_section(page, title):
    """The text of a page without one section, and that section."""
    text = page.read_text()
    start = text.index(f"\n## {title}\n")
    after = text.find("\n## ", start + 1)
    end = after if after > 0 else len(text)
    return text[:start] + text[end:], text[start:end]


def check_blocks(text):
    """Run the blocks of a text in one session and compare what they print with what it shows."""
    session = {}
    for found in BLOCK.finditer(text):
        check_same(run_block(found["code"], session), found["printed"] or "")


def check_same(printed, shown):
    """The same words, line breaks aside, and numbers that differ by no more than machines do."""
    there, here = (NUMBER.sub("#", text).split() for text in (printed, shown))
    assert there == here, printed
    numbers = (map(float, NUMBER.findall(text)) for text in (printed, shown))
    for value, claimed in zip(*numbers, strict=True):
        assert abs(value - claimed) <= 0.01 + 0.05 * abs(claimed), (value, claimed, printed)

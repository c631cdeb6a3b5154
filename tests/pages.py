"""The Python blocks of a Markdown page, and the output that the page says they print."""

import io
import re
from contextlib import redirect_stdout

SHELL = re.compile(r"^```\n(.*?)^```$", re.DOTALL | re.MULTILINE)
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


def shell_commands(text):
    """The commands of a text, lines that start with "$ ", each with the output that is shown.

    A block that starts without a command shows more of the output of the last one.
    """
    blocks = "\n…\n".join(SHELL.findall(text))
    for entry in re.split(r"^\$ ", blocks, flags=re.MULTILINE)[1:]:
        command, _, shown = entry.partition("\n")
        yield command, shown


def check_excerpt(printed, shown):
    """What is shown is printed, in this order; a line "…" stands for any output."""
    rest = printed.split()
    for part in re.split(r"^ *…$", shown, flags=re.MULTILINE):
        words = part.split()
        if not words:
            continue
        length = len(words)
        pattern = [NUMBER.sub("#", word) for word in words]
        starts = (
            k
            for k in range(len(rest) - length + 1)
            if [NUMBER.sub("#", word) for word in rest[k : k + length]] == pattern
        )
        start = next(starts, None)
        assert start is not None, (part, printed)
        check_same(" ".join(rest[start : start + length]), part)
        rest = rest[start + length :]

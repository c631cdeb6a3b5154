"""Warnings appear once at the user's line, with Python's own filters."""

import subprocess
import sys

SCRIPT = """
from wri.errors import warn_caller
for _ in range(3):
    warn_caller("one site")
warn_caller("one site")
"""


def test_a_line_warns_once_with_the_filters_that_python_starts_with():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "UserWarning: one site" in line]
    assert lines == ["<string>:4: UserWarning: one site", "<string>:5: UserWarning: one site"]

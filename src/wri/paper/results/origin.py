"""What a result was made with: version and date of the code, libraries and machine."""

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

import wri


@cache
def describe_origin() -> str:
    """Return one sentence that is the same for all results of this code on this machine."""
    commit = find_commit_date()
    code = f"wri {wri.__version__}" + (f", commit of {commit}" if commit else "")
    libraries = ", ".join(f"{name} {version(name).split('+')[0]}" for name in ("torch", "numpy"))
    cores = os.cpu_count()
    return (
        f"{code}; Python {platform.python_version()}, {libraries}; {cores} cores, {_processor()}."
    )


def find_commit_date() -> str:
    """Return the date of the last commit that touched the package; empty outside of a clone."""
    command = ["git", "log", "-1", "--format=%cs", "--", "."]
    try:
        done = subprocess.run(
            command, cwd=Path(wri.__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _processor() -> str:
    """Return the name of the processor, as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()

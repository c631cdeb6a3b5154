"""README as package indexes show it; everything else is in pyproject.toml.

    make dist ADDRESS=https://github.com/OWNER/NAME

Relative links and pictures do not work on a package index. With an address they lead to the files
of this version there. Without one, pictures are left out and links are plain text.
"""

import os
import re
from pathlib import Path

ROOT = Path(__file__).parent
RELATIVE = r"\((?!https?://|#)([^)]+)\)"  # the target of a link into this repository


def public_readme(text: str, address: str, version: str) -> str:
    """Make links and pictures absolute, or leave them out."""
    if address:
        text = re.sub(rf"(!\[[^]]*\]){RELATIVE}", rf"\1({address}/raw/v{version}/\2)", text)
        return re.sub(rf"(\[[^]]*\]){RELATIVE}", rf"\1({address}/blob/v{version}/\2)", text)
    text = re.sub(rf"^!\[[^]]*\]{RELATIVE}\n+", "", text, flags=re.MULTILINE)
    return re.sub(rf"\[([^]]*)\]{RELATIVE}", r"\1", text)


def find_version() -> str:
    found = re.search(r'^__version__ = "(.*?)"', (ROOT / "src/wri/__init__.py").read_text(), re.M)
    return found[1] if found else ""


if __name__ == "__main__":
    from setuptools import setup

    ADDRESS = os.environ.get("ADDRESS", "").rstrip("/")
    setup(
        long_description=public_readme((ROOT / "README.md").read_text(), ADDRESS, find_version()),
        long_description_content_type="text/markdown",
        project_urls={"Repository": ADDRESS} if ADDRESS else {},
    )

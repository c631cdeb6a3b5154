"""Where downloads and features are kept between processes."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$WRI_CACHE, else $XDG_CACHE_HOME/wri, else ~/.cache/wri; made by whoever writes to it."""
    if own := os.environ.get("WRI_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(shared) if Path(shared).is_absolute() else Path.home() / ".cache"
    return base / "wri"

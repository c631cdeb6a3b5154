"""Names that moved: for one version they are found where they were."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def find_moved(old: str, new: str, names: tuple[str, ...]) -> Callable[[str], Any]:
    """Make the `__getattr__` of a module whose `names` moved; it imports their new place late."""

    def find(name: str) -> Any:
        if name in names:
            return getattr(import_module(new), name)
        raise AttributeError(f"module {old!r} has no attribute {name!r}")

    return find

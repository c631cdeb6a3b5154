"""Names that moved or changed: for one version they are found where they were."""

import warnings
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


class OldName:
    """Former name of an attribute or a method; it warns."""

    def __init__(self, new: str) -> None:
        self._new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self._old = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        warnings.warn(
            f"{self._old} is now called {self._new}; the next version removes the old name",
            FutureWarning,
            stacklevel=2,
        )
        return getattr(instance, self._new)

"""Weighted risk invariance: predictors from several environments that hold in a new one."""

from importlib import import_module
from typing import Any

from wri.errors import InputError
from wri.registry import ALGORITHMS

__version__ = "0.2.0"  # pyproject.toml reads it here; CITATION.cff repeats it
ESTIMATORS = tuple(
    f"{entry.estimator}{kind}"
    for boosted in (False, True)
    for kind in ("Classifier", "Regressor")
    for entry in ALGORITHMS.values()
    if entry.boosted is boosted
)
LAZY = {
    **dict.fromkeys(ESTIMATORS, "wri.estimators"),
    "PictureClassifier": "wri.estimators.pictures",
    "estimator": "wri.estimators",
    "load": "wri.saving",
    "make_pipeline": "wri.estimators.pipeline",
    "register": "wri.objectives",
}
"""Public names that are imported on first use, and their modules."""
__all__ = ["InputError", "__version__", *LAZY]


def __getattr__(name: str) -> Any:
    """Import estimators on first use: they need PyTorch, which takes seconds to import."""
    if name in LAZY:
        return getattr(import_module(LAZY[name]), name)
    raise AttributeError(f"module 'wri' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

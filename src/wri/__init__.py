"""Weighted risk invariance: predictors that hold in a new environment."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from wri.errors import InputError

if TYPE_CHECKING:
    from wri.estimators import (
        CORALClassifier,
        CORALRegressor,
        ERMClassifier,
        ERMRegressor,
        GroupDROClassifier,
        GroupDRORegressor,
        IRMClassifier,
        IRMRegressor,
        MixupClassifier,
        MixupRegressor,
        MLDGClassifier,
        MLDGRegressor,
        VRExClassifier,
        VRExRegressor,
        WRIClassifier,
        WRIRegressor,
    )

__version__ = version("weighted-risk-invariance")
__all__ = [
    "CORALClassifier",
    "CORALRegressor",
    "ERMClassifier",
    "ERMRegressor",
    "GroupDROClassifier",
    "GroupDRORegressor",
    "IRMClassifier",
    "IRMRegressor",
    "InputError",
    "MLDGClassifier",
    "MLDGRegressor",
    "MixupClassifier",
    "MixupRegressor",
    "VRExClassifier",
    "VRExRegressor",
    "WRIClassifier",
    "WRIRegressor",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Estimators on first use: they need PyTorch, which takes seconds to import."""
    if name in __all__:
        return getattr(import_module("wri.estimators"), name)
    raise AttributeError(f"module 'wri' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

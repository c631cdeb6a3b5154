"""scikit-learn classifiers and regressors, one of each per objective of the registry."""

from importlib import import_module
from typing import Any

from wri.estimators.derived import ESTIMATORS
from wri.estimators.pipeline import EnvironmentPipeline, make_pipeline

globals().update(ESTIMATORS)  # so that they can be imported and pickled from here


def __getattr__(name: str) -> Any:
    """Import `load` on first use: saving imports all estimators."""
    if name == "load":
        return import_module("wri.saving").load
    raise AttributeError(f"module 'wri.estimators' has no attribute {name!r}")


__all__ = ["ESTIMATORS", "EnvironmentPipeline", "load", "make_pipeline", *ESTIMATORS]

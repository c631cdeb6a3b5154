"""scikit-learn classifiers and regressors, one of each per objective of the registry."""

from importlib import import_module
from typing import Any

from wri.estimators.derived import ESTIMATORS, estimator
from wri.estimators.pipeline import EnvironmentPipeline, make_pipeline

globals().update(ESTIMATORS)  # so that they can be imported and pickled from here


def __getattr__(name: str) -> Any:
    """Import `load` on first use, and find estimators of objectives that were registered later."""
    if name == "load":
        return import_module("wri.saving").load
    if name in ESTIMATORS:
        return ESTIMATORS[name]
    raise AttributeError(f"module 'wri.estimators' has no attribute {name!r}")


__all__ = ["ESTIMATORS", "EnvironmentPipeline", "estimator", "load", "make_pipeline", *ESTIMATORS]

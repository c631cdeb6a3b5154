"""scikit-learn classifiers and regressors, one of each per objective of the registry."""

from typing import Any

from wri.estimators.derived import ESTIMATORS, estimator
from wri.estimators.pipeline import EnvironmentPipeline, make_pipeline
from wri.estimators.saving import load

globals().update(ESTIMATORS)  # so that they can be imported and pickled from here


def __getattr__(name: str) -> Any:
    """Find estimators of objectives that were registered later."""
    if name in ESTIMATORS:
        return ESTIMATORS[name]
    raise AttributeError(f"module 'wri.estimators' has no attribute {name!r}")


__all__ = ["ESTIMATORS", "EnvironmentPipeline", "estimator", "load", "make_pipeline", *ESTIMATORS]

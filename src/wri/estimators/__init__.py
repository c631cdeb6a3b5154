"""scikit-learn classifiers and regressors, one of each per objective of the registry."""

from typing import TYPE_CHECKING, Any

from wri.estimators.derived import ESTIMATORS
from wri.estimators.pipeline import EnvironmentPipeline, make_pipeline
from wri.estimators.saving import load

globals().update(ESTIMATORS)  # so that they can be imported and pickled from here

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


__all__ = ["ESTIMATORS", "EnvironmentPipeline", "load", "make_pipeline", *ESTIMATORS]

"""scikit-learn classifiers and regressors: one of each for every objective."""

from wri.estimators.classifiers import (
    CORALClassifier,
    ERMClassifier,
    GroupDROClassifier,
    IRMClassifier,
    MixupClassifier,
    MLDGClassifier,
    VRExClassifier,
    WRIClassifier,
)
from wri.estimators.regressors import (
    CORALRegressor,
    ERMRegressor,
    GroupDRORegressor,
    IRMRegressor,
    MixupRegressor,
    MLDGRegressor,
    VRExRegressor,
    WRIRegressor,
)
from wri.estimators.saving import load

__all__ = [
    "CORALClassifier",
    "CORALRegressor",
    "ERMClassifier",
    "ERMRegressor",
    "GroupDROClassifier",
    "GroupDRORegressor",
    "IRMClassifier",
    "IRMRegressor",
    "MLDGClassifier",
    "MLDGRegressor",
    "MixupClassifier",
    "MixupRegressor",
    "VRExClassifier",
    "VRExRegressor",
    "WRIClassifier",
    "WRIRegressor",
    "load",
]

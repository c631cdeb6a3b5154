"""A regressor for each objective: squared error of a target that is standardised inside."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from wri.estimators.base import Estimator
from wri.stacked import SQUARED


class Regressor(RegressorMixin, Estimator):  # type: ignore[misc]
    """The squared error of head(Φ(x)); parameters as in `Estimator`.

    Penalties are of the order of y⁴ and λ would depend on y's unit, so y is standardised by the
    rows that are learned from; predictions come back in y's unit.
    """

    _loss = SQUARED

    def predict(self, X: Any) -> np.ndarray:
        """The expected target of every row."""
        return self._predictions(self._outputs(self._standardised(X)))[:, 0]

    def _predictions(self, outputs: np.ndarray) -> np.ndarray:
        return self.target_scaling_.undo(outputs)

    def _encode(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y, np.float64)


class ERMRegressor(Regressor):
    """Empirical risk minimisation: the environments' mean risk and nothing else."""

    _objective = "erm"


class IRMRegressor(Regressor):
    """Invariant risk minimisation: no environment may want another scale of the outputs."""

    _objective = "irm"


class VRExRegressor(Regressor):
    """Variance risk extrapolation: the environments' risks must agree."""

    _objective = "vrex"


class GroupDRORegressor(Regressor):
    """Group distributionally robust optimisation: the worst environments count most."""

    _objective = "groupdro"


class MixupRegressor(Regressor):
    """Mixup between environments: lines between rows instead of rows."""

    _objective = "mixup"


class MLDGRegressor(Regressor):
    """Meta-learning: a step on some environments must help the others."""

    _objective = "mldg"


class CORALRegressor(Regressor):
    """Correlation alignment: Φ(x) has the same mean and covariance everywhere."""

    _objective = "coral"


class WRIRegressor(Regressor):
    """Weighted risk invariance: risks agree where both environments have rows."""

    _objective = "wri"

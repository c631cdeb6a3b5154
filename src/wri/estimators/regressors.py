"""What the regressors of all objectives share: squared error of a standardised target."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from wri.errors import InputError
from wri.estimators.common import EnvironmentEstimator
from wri.stacked import SQUARED

LARGEST = 1e150  # of a target whose squared errors are to be measured


class Regressor(RegressorMixin, EnvironmentEstimator):  # type: ignore[misc]
    """The squared error of head(Φ(x)); parameters as in `Estimator`.

    Penalties are of the order of y⁴ and λ would depend on y's unit, so y is standardised by the
    rows that are learned from; predictions come back in y's unit.
    """

    _loss = SQUARED

    def predict(self, X: Any) -> np.ndarray:
        """The expected target of every row."""
        return self._decide(self._outputs(self._prepared(X)))

    def _decide(self, outputs: np.ndarray) -> np.ndarray:
        return self._predictions(outputs)[:, 0]

    def _predictions(self, outputs: np.ndarray) -> np.ndarray:
        return self.target_scaling_.undo(outputs)

    def _encode(self, y: np.ndarray) -> np.ndarray:
        numbers = np.asarray(y, np.float64)
        largest = float(np.abs(numbers).max())
        if largest and not 1 / LARGEST < largest < LARGEST:
            raise InputError(
                f"y holds numbers of the order of {largest:.0e}, whose squares doubles cannot "
                "hold; give y in another unit"
            )
        return numbers

    def _shape_coefficients(self, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, float]:
        unit = self.target_scaling_
        return weight[0] * unit.scale, float(bias[0] * unit.scale + unit.mean)

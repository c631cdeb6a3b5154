"""What the regressors of all objectives share: squared error of a standardised target."""

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

"""Base class of the regressors of all objectives."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from wri.errors import InputError
from wri.estimators.common import EnvironmentEstimator
from wri.stacked import SQUARED

LARGEST = 1e150  # of a target, so that its square is finite


class Regressor(RegressorMixin, EnvironmentEstimator):  # type: ignore[misc]
    """Regressor with squared error.

    Penalties scale with y⁴, so λ would depend on the unit of y. Therefore y is standardised with
    the training rows, and predictions are returned in the unit of y.

    Examples
    --------
    >>> import numpy as np
    >>> from wri import WRIRegressor
    >>> X = np.random.default_rng(0).normal(size=(90, 2))
    >>> y = 100 + 10 * X[:, 0]
    >>> site = np.repeat(["north", "east", "south"], 30)
    >>> model = WRIRegressor(steps=60, site_spread=False).fit(X, y, groups=site)
    >>> low, high = model.predict([[-1.5, 0.0], [1.5, 0.0]])
    >>> bool(low < 100 < high)
    True
    >>> model.n_environments_
    3
    """

    _loss = SQUARED

    def predict(self, X: Any) -> np.ndarray:
        """Predict the target of each row.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        values : ndarray of shape (n_rows,)
            Predictions in the unit of y.
        """
        return self._decide(self._finite_outputs(self._prepared(X)))

    def _decide(self, outputs: np.ndarray) -> np.ndarray:
        return self._predictions(outputs)[:, 0]

    def _predictions(self, outputs: np.ndarray) -> np.ndarray:
        return self.target_scaling_.undo(outputs)

    def _encode(self, y: np.ndarray) -> np.ndarray:
        numbers = np.asarray(y, np.float64)
        largest = float(np.abs(numbers).max())
        if largest and not 1 / LARGEST < largest < LARGEST:
            raise InputError(
                f"y holds numbers of the order of {largest:.0e}, whose squares do not fit in "
                "float64; give y in another unit"
            )
        return numbers

    def _shape_coefficients(self, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, float]:
        unit = self.target_scaling_
        return weight[0] * unit.scale, float(bias[0] * unit.scale + unit.mean)

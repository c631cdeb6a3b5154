"""Coefficients of linear predictors in the units of the user's columns."""

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted


class CoefficientsMixin:
    """Mix-in with `coef_` and `intercept_` of a fitted predictor without hidden layers."""

    network_: Any
    parameters_: np.ndarray
    input_scaling_: Any

    @property
    def coef_(self) -> np.ndarray:
        """Change of the prediction per unit of each column.

        Shapes are those of scikit-learn's linear models. Classifiers have log-odds: `[1, D]` for
        two classes, else `[C, D]`, each class against the mean of all. Regressors have `[D]`.
        """
        return self._in_user_units()[0]

    @property
    def intercept_(self) -> Any:
        """Prediction where all columns are zero: `[1]`, `[C]`, or a number."""
        return self._in_user_units()[1]

    def _in_user_units(self) -> tuple[np.ndarray, Any]:
        """Return coefficients and intercept in the units of the columns."""
        weight, bias = self._standard_coefficients()
        weight = weight / self.input_scaling_.scale
        return self._shape_coefficients(weight, bias - weight @ self.input_scaling_.mean)

    def _standard_coefficients(self) -> tuple[np.ndarray, np.ndarray]:  # [C, D], [C]
        """Return coefficients and intercept of standardised columns."""
        check_is_fitted(self, "evidence_")
        if len(self.network_.widths) > 2:
            hidden = self.network_.widths[1:-1]
            raise AttributeError(
                f"coef_ and intercept_ exist for linear predictors only; this one has hidden "
                f"layers of {', '.join(map(str, hidden))} units: fit with hidden=()"
            )
        row = torch.as_tensor(self.parameters_)[None]
        weight, bias = (part.numpy() for part in self.network_.packing.views(row))
        return weight[0, 0], bias[0, 0, :, 0]

    @abstractmethod
    def _shape_coefficients(self, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, Any]:
        """Turn coefficients of the outputs, `[C, D]` and `[C]`, into those of the prediction."""

"""Coefficients of linear predictors in the units of the user's columns."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from wri.estimators.choice import CandidateLosses


class PenaltyPath(NamedTuple):
    """Coefficients of a solved linear predictor along λ.

    Attributes
    ----------
    penalty_weights : ndarray of shape (L,)
        λ, ascending; 0 is ERM.
    coefficients : ndarray of shape (L, ...)
        `coef_` for each λ, in the units of the columns.
    intercepts : ndarray of shape (L, ...)
        `intercept_` for each λ.
    left_out : CandidateLosses or None
        Losses at environments left out, by candidate and future; None if λ was not chosen.
    """

    penalty_weights: np.ndarray
    coefficients: np.ndarray
    intercepts: np.ndarray
    left_out: CandidateLosses | None


class CoefficientsMixin:
    """Mix-in with `coef_` and `intercept_` of a fitted predictor without hidden layers."""

    network_: Any
    parameters_: np.ndarray
    input_scaling_: Any
    hyper_: Mapping[str, float]
    _column_names: Any

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
        check_is_fitted(self, "network_")
        if len(self.network_.widths) > 2:
            hidden = self.network_.widths[1:-1]
            raise AttributeError(
                f"coef_ and intercept_ exist for linear predictors only; this one has hidden "
                f"layers of {', '.join(map(str, hidden))} units: fit with hidden=()"
            )
        row = torch.as_tensor(self.parameters_)[None]
        weight, bias = (part.numpy() for part in self.network_.packing.views(row))
        return weight[0, 0], bias[0, 0, :, 0]

    def coef_path(self, ax: Any = None) -> Any:
        """Draw the coefficients of a solved predictor against λ.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None: new ones.

        Returns
        -------
        ax : matplotlib Axes
            The axes. Coefficients are per standard deviation of their columns, so that they can be
            compared; with several classes those of the last class are drawn.
        """
        from wri.diagnosis.path_plot import draw_path

        check_is_fitted(self, "evidence_")
        path = getattr(self, "penalty_path_", None)
        if path is None:
            raise AttributeError(
                "there is no path of λ: it exists after fit for linear predictors that are solved "
                "with a penalty, such as WRIClassifier()"
            )
        coefficients = path.coefficients.reshape(len(path.penalty_weights), -1)
        coefficients = coefficients[:, -len(self.input_scaling_.scale) :]  # of the last class
        chosen = float(self.hyper_["penalty_weight"])
        standard = coefficients * self.input_scaling_.scale
        return draw_path(ax, path.penalty_weights, standard, self._column_names(), chosen)

    @abstractmethod
    def _shape_coefficients(self, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, Any]:
        """Turn coefficients of the outputs, `[C, D]` and `[C]`, into those of the prediction."""

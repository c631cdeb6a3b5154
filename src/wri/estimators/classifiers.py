"""What the classifiers of all objectives share: cross-entropy, any labels, two classes or more."""

from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from wri.errors import InputError, shorten
from wri.estimators.common import EnvironmentEstimator
from wri.stacked import CROSS_ENTROPY


class Classifier(ClassifierMixin, EnvironmentEstimator):  # type: ignore[misc]
    """The log-loss of class probabilities softmax(head(Φ(x))); parameters as in `Estimator`."""

    _loss = CROSS_ENTROPY

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every row."""
        return self._decide(self._outputs(self._prepared(X)))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities `[n_rows, n_classes]`, columns as in `classes_`."""
        return self._predictions(self._outputs(self._prepared(X)))

    @property
    def _n_outputs(self) -> int:
        return len(self.classes_)

    def _encode(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        self.classes_, number = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            only = shorten(repr(self.classes_[0]))
            raise InputError(f"y holds one class, {only}; a classifier needs two classes")
        return number

    def _decide(self, outputs: np.ndarray) -> np.ndarray:
        return self.classes_[outputs.argmax(1)]

    def _predictions(self, outputs: np.ndarray) -> np.ndarray:
        return softmax(outputs, axis=1)

    def _free_outputs(self, outputs: np.ndarray) -> np.ndarray:  # [n, C] -> [n, C − 1]
        """Log-odds against the last class: what all outputs share does not matter."""
        return outputs[:, :-1] - outputs[:, -1:]

    def _shape_coefficients(
        self, weight: np.ndarray, bias: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        if len(weight) == 2:
            return weight[1:] - weight[:1], bias[1:] - bias[:1]
        return weight - weight.mean(0), bias - bias.mean()

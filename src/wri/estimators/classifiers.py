"""Base class of the classifiers of all objectives."""

from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from wri.errors import InputError, shorten
from wri.estimators.common import EnvironmentEstimator
from wri.stacked import CROSS_ENTROPY


class Classifier(ClassifierMixin, EnvironmentEstimator):  # type: ignore[misc]
    """Classifier with log-loss of the class probabilities, which are the softmax of the outputs.

    Labels may be of any type; two classes or more. The attribute `classes_` holds the labels in the
    order of the columns of `predict_proba`.

    Examples
    --------
    >>> import numpy as np
    >>> from wri import WRIClassifier
    >>> X = np.random.default_rng(0).normal(size=(90, 2))
    >>> y = np.where(X[:, 0] > 0, "ill", "well")
    >>> site = np.repeat(["north", "east", "south"], 30)
    >>> model = WRIClassifier(steps=60, site_spread=False).fit(X, y, groups=site)
    >>> model.predict([[1.5, 0.0], [-1.5, 0.0]]).tolist()
    ['ill', 'well']
    >>> model.n_environments_
    3
    """

    _loss = CROSS_ENTROPY

    def predict(self, X: Any) -> np.ndarray:
        """Predict the most probable class of each row.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        classes : ndarray of shape (n_rows,)
            Labels out of `classes_`.
        """
        return self._decide(self._finite_outputs(self._prepared(X)))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict the probability of each class.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        probabilities : ndarray of shape (n_rows, n_classes)
            Columns in the order of `classes_`.
        """
        return self._predictions(self._finite_outputs(self._prepared(X)))

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

    def _confidence(self, outputs: np.ndarray) -> np.ndarray:  # [n, C] -> [n]
        ordered = np.sort(outputs, axis=1)
        return ordered[:, -1] - logsumexp(ordered[:, :-1], axis=1)

    def _free_outputs(self, outputs: np.ndarray) -> np.ndarray:  # [n, C] -> [n, C − 1]
        """Return log-odds against the last class; a shift of all outputs does not matter."""
        return outputs[:, :-1] - outputs[:, -1:]

    def _shape_coefficients(
        self, weight: np.ndarray, bias: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        if len(weight) == 2:
            return weight[1:] - weight[:1], bias[1:] - bias[:1]
        return weight - weight.mean(0), bias - bias.mean()

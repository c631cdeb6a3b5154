"""What every fitted model of tables answers about rows, and how it is saved."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from wri.moved import OldName
from wri.ood.evidence import RowEvidence
from wri.ood.held_out import UnseenCells

if TYPE_CHECKING:
    from wri.estimators.base import EnvironmentEstimator


@dataclass(frozen=True, eq=False, kw_only=True)
class Assessment(RowEvidence):
    """Prediction and evidence of each row.

    Attributes
    ----------
    predictions : ndarray of shape (n_rows,)
        Predicted classes or numbers.
    probabilities : ndarray of shape (n_rows, n_classes) or None
        Class probabilities; None for a regressor.
    nearest : ndarray of shape (n_rows,)
        Training environment in which the row is most common.
    unseen : tuple of UnseenCells, default=()
        Cells of kinds that training never had, by column.
    scores, typicality, verdicts, reasons : ndarray of shape (n_rows,)
        As in `RowEvidence`.
    environments : ndarray of shape (n_rows, n_environments)
        As in `RowEvidence`.
    """

    predictions: np.ndarray  # [n], classes or numbers
    probabilities: np.ndarray | None  # [n, C], of a classifier
    nearest: np.ndarray  # [n], the training environment in which the row is most common
    unseen: tuple[UnseenCells, ...] = ()


class TableModel(ABC):
    """Methods that estimators and pipelines share: predictions, verdicts, and saving."""

    def predict(self, X: Any) -> np.ndarray:
        """Predict the class or the number of each row.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        predictions : ndarray of shape (n_rows,)
            Most probable classes, or numbers in the unit of y.
        """
        estimator, prepared = self._for_estimator(X)
        return estimator._decide(estimator._finite_outputs(prepared))

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log density of each row in the equal mixture of the training environments.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        scores : ndarray of shape (n_rows,)
            Log densities; higher is more common.
        """
        estimator, prepared = self._for_estimator(X)
        return estimator.evidence_.score(estimator._represent(prepared))

    def score_environments(self, X: Any) -> np.ndarray:
        """Return the log density of each row in each training environment.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        scores : ndarray of shape (n_rows, n_environments)
            Log densities; higher is more common.
        """
        estimator, prepared = self._for_estimator(X)
        return estimator.evidence_.score_environments(estimator._represent(prepared))

    def typicality(self, X: Any) -> np.ndarray:
        """Return the percentage of held-out training rows that score at most as high as each row.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        typicality : ndarray of shape (n_rows,)
            Percentages; higher is more common. 3 means that 3 % of the held-out rows were as rare
            or rarer. For a classifier, rows that it is unsure of are rare as well as far ones.
        """
        return self._judge(X).typicality

    rarity = OldName("typicality")

    def verdict(self, X: Any) -> np.ndarray:
        """Tell for each row whether training held rows like it.

        A classifier's row is rare if it is less sure of the class than of nearly all training rows,
        or if the row is far from them. Rare rows are more often wrong than supported ones at sites
        like those seen. A number is rare if it is far from those of training. A row is outside if
        it is farther than nearly any training row. What "far" means is said by `evidence_on`: by
        default, outputs more extreme than in training. `reason` tells which reason holds.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        verdicts : ndarray of shape (n_rows,)
            "supported", "rare" or "outside".
        """
        return self._judge(X).verdicts

    def reason(self, X: Any) -> np.ndarray:
        """Tell for each row why its verdict is not "supported".

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        reasons : ndarray of shape (n_rows,)
            Reasons separated by "; ": "low confidence", "far from training", and from a pipeline
            names of columns with an unknown category or a gap that training never had. Empty for
            supported rows.
        """
        return self._judge(X).reasons

    def nearest_environment(self, X: Any) -> np.ndarray:
        """Return the training environment in which each row is most common.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        environments : ndarray of shape (n_rows,)
            Labels of training environments.
        """
        estimator, prepared = self._for_estimator(X)
        nearest = estimator.evidence_.nearest(estimator._represent(prepared))
        return estimator.environments_[nearest]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the fitted model to a folder, which then holds no code.

        Parameters
        ----------
        folder : path-like
            A new or empty folder, or the folder of a saved model, which is replaced.

        Raises
        ------
        InputError
            If the model cannot be saved, or the folder holds other files.
        """
        import_module("wri.saving").save(self, folder)  # imported here: it imports all estimators

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Load a saved model, with the same predictions to the last bit.

        Parameters
        ----------
        folder : path-like
            Folder that `save` wrote. Folders from strangers are safe: a damaged or hostile folder
            is an error, and nothing in it is run.

        Returns
        -------
        model : object of this class
            The fitted model.

        Raises
        ------
        InputError
            If the folder holds no saved model, a damaged one, or one of another class.
        """
        return import_module("wri.saving").load(folder, cls)

    @abstractmethod
    def _for_estimator(self, X: Any) -> tuple["EnvironmentEstimator", np.ndarray]:
        """Return the fitted estimator, and a table in the form that its predictor takes."""

    @abstractmethod
    def _judge(self, X: Any) -> RowEvidence:
        """Return the evidence of a table's rows."""

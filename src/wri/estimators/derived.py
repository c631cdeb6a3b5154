"""Estimator classes: classifiers and regressors per objective, with networks and with trees."""

from inspect import getdoc
from itertools import product
from typing import Any, Literal

import numpy as np
from scipy.special import logsumexp, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from wri.errors import InputError, check_option, shorten
from wri.estimators.base import EnvironmentEstimator
from wri.estimators.network import Estimator
from wri.estimators.trees import TreeEstimator
from wri.objectives import Objective, register
from wri.registry import ALGORITHMS, OBJECTIVES, AlgorithmEntry, ObjectiveEntry
from wri.rows import name_unreadable_cells
from wri.stacked import CROSS_ENTROPY, SQUARED

LARGEST = 1e150  # of a target, so that its square is finite
EXAMPLES = "\nExamples\n--------\n"
REFERENCES = "\nReferences\n----------\n"
NETWORK_TO_TREES = ("steps=60", "rounds=20, least_rows=5")


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
        with name_unreadable_cells(y=y):
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


Kind = type[Classifier] | type[Regressor]
Predictor = type[Estimator] | type[TreeEstimator]


def derive(kind: Kind, entry: AlgorithmEntry) -> type[EnvironmentEstimator]:
    """Make `WRIClassifier` from `Classifier`, networks and the entry of WRI, with complete help."""
    predictor = TreeEstimator if entry.boosted else Estimator
    objective, name = OBJECTIVES[entry.objective], f"{entry.estimator}{kind.__name__}"
    namespace = {
        "__doc__": compose_docstring(kind, predictor, objective, name),
        "__module__": "wri.estimators",
        "__qualname__": name,
        "_objective": objective.name,
        "_kind": objective.objective,
    }
    return type(name, (kind, predictor), namespace)


def compose_docstring(kind: Kind, predictor: Predictor, entry: ObjectiveEntry, name: str) -> str:
    """Compose the help of an estimator.

    The text about the task and the example come from `kind`, parameters and attributes from the
    predictor, the references from the objective's class. The example of `kind` is written for WRI
    with a network; its name is replaced, and for trees its number of steps.
    """
    trees = predictor is TreeEstimator
    shared = (getdoc(predictor) or "").partition("\n\n")[2]
    about, _, example = (getdoc(kind) or "").partition(EXAMPLES)
    example = example.replace(f"WRI{kind.__name__}", name)
    example = example.replace(*NETWORK_TO_TREES) if trees else example
    references = (getdoc(entry.objective) or "").partition(REFERENCES)[2].partition("\n\n")[0]
    sources = f"{REFERENCES}{references}\n" if references else ""
    what = f"{kind.__name__.lower()} with boosted trees" if trees else kind.__name__.lower()
    summary = f"{entry.label} {what}: {entry.about}."
    return f"{summary}\n\n{about.strip()}\n\n{shared}\n{sources}{EXAMPLES}{example}\n"


KINDS: dict[str, Kind] = {"classifier": Classifier, "regressor": Regressor}
ESTIMATORS: dict[str, type[EnvironmentEstimator]] = {
    f"{entry.estimator}{kind.__name__}": derive(kind, entry)
    for boosted, kind in product((False, True), KINDS.values())
    for entry in ALGORITHMS.values()
    if entry.boosted is boosted
}
"""All estimators by name: networks, then trees; classifiers first."""


def estimator(
    objective: type[Objective],
    kind: Literal["classifier", "regressor"] = "classifier",
    *,
    boosted: bool = False,
) -> type[EnvironmentEstimator]:
    """Return the estimator of an objective, which is registered if it is not yet.

    Parameters
    ----------
    objective : type
        Class of the objective.
    kind : {"classifier", "regressor"}, default="classifier"
        Kind of the target.
    boosted : bool, default=False
        Whether the predictor is boosted trees instead of a network.

    Returns
    -------
    estimator : type
        Class with the constructor and methods of `WRIClassifier` or `WRIRegressor`.

    Raises
    ------
    InputError
        If the objective does not follow the contract, or trees cannot minimise it.

    Examples
    --------
    >>> import wri
    >>> from wri.objectives import VREx
    >>> wri.estimator(VREx) is wri.VRExClassifier
    True
    """
    check_option("kind", kind, tuple(KINDS))
    known = [name for name, entry in OBJECTIVES.items() if entry.objective is objective]
    name = known[0] if known else register(objective).name
    if boosted and f"{name}-boosting" not in ALGORITHMS:
        raise InputError(
            f"boosted trees need a penalty that depends on losses only; if that of {name} does, "
            "set penalises_losses = True in its class"
        )
    derived = derive(KINDS[kind], ALGORITHMS[f"{name}-boosting" if boosted else name])
    made = ESTIMATORS.get(derived.__name__)
    if made is None or made._kind is not objective:
        ESTIMATORS[derived.__name__] = made = derived
    return made

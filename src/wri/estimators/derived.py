"""Estimator classes: classifiers and regressors per objective, with networks and with trees."""

from inspect import getdoc
from typing import Literal

from wri.errors import InputError, check_option
from wri.estimators.base import Estimator
from wri.estimators.boosted import TreeEstimator
from wri.estimators.classifiers import Classifier
from wri.estimators.common import EnvironmentEstimator
from wri.estimators.regressors import Regressor
from wri.objectives import Objective, register
from wri.registry import ALGORITHMS, OBJECTIVES, AlgorithmEntry, ObjectiveEntry

EXAMPLES = "\nExamples\n--------\n"
REFERENCES = "\nReferences\n----------\n"
NETWORK_TO_TREES = ("steps=60", "rounds=20, least_rows=5")

Kind = type[Classifier] | type[Regressor]
Predictor = type[Estimator] | type[TreeEstimator]


def derive(kind: Kind, predictor: Predictor, entry: ObjectiveEntry) -> type[EnvironmentEstimator]:
    """Make `WRIClassifier` from `Classifier`, networks and the entry of WRI, with complete help."""
    name = f"{entry.label}{'Boosting' if predictor is TreeEstimator else ''}{kind.__name__}"
    namespace = {
        "__doc__": compose_docstring(kind, predictor, entry, name),
        "__module__": "wri.estimators",
        "__qualname__": name,
        "_objective": entry.name,
        "_kind": entry.objective,
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


def _derive(kind: Kind, entry: AlgorithmEntry) -> type[EnvironmentEstimator]:
    return derive(kind, TreeEstimator if entry.boosted else Estimator, OBJECTIVES[entry.objective])


ESTIMATORS: dict[str, type[EnvironmentEstimator]] = {
    derived.__name__: derived
    for boosted in (False, True)
    for kind in KINDS.values()
    for derived in (
        _derive(kind, entry) for entry in ALGORITHMS.values() if entry.boosted is boosted
    )
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
    derived = _derive(KINDS[kind], ALGORITHMS[f"{name}-boosting" if boosted else name])
    made = ESTIMATORS.get(derived.__name__)
    if made is None or made._kind is not objective:
        ESTIMATORS[derived.__name__] = made = derived
    return made

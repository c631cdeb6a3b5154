"""scikit-learn classifiers and regressors, one of each per objective of the registry."""

from importlib import import_module
from inspect import getdoc
from itertools import product
from typing import Any, Literal

from wri.errors import InputError, check_option
from wri.estimators.base import Classifier, EnvironmentEstimator, Regressor
from wri.estimators.network import Estimator
from wri.estimators.pipeline import EnvironmentPipeline, make_pipeline
from wri.estimators.trees import TreeEstimator
from wri.objectives import Objective, register
from wri.registry import ALGORITHMS, OBJECTIVES, AlgorithmEntry, ObjectiveEntry

EXAMPLES = "\nExamples\n--------\n"
REFERENCES = "\nReferences\n----------\n"
NETWORK_TO_TREES = ("steps=60", "rounds=20, least_rows=5")

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


globals().update(ESTIMATORS)  # so that they can be imported and pickled from here


def __getattr__(name: str) -> Any:
    """Import `load` on first use, and find estimators of objectives that were registered later."""
    if name == "load":
        return import_module("wri.saving").load
    if name in ESTIMATORS:
        return ESTIMATORS[name]
    raise AttributeError(f"module 'wri.estimators' has no attribute {name!r}")


__all__ = ["ESTIMATORS", "EnvironmentPipeline", "estimator", "load", "make_pipeline", *ESTIMATORS]

"""Estimator classes: classifiers and regressors per objective, with networks and with trees."""

from inspect import getdoc

from wri.estimators.base import Estimator
from wri.estimators.boosted import TreeEstimator
from wri.estimators.classifiers import Classifier
from wri.estimators.common import EnvironmentEstimator
from wri.estimators.regressors import Regressor
from wri.registry import BOOSTED, OBJECTIVES, ObjectiveEntry

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


KINDS: tuple[Kind, ...] = (Classifier, Regressor)
ESTIMATORS: dict[str, type[EnvironmentEstimator]] = {
    derived.__name__: derived
    for predictor, names in ((Estimator, tuple(OBJECTIVES)), (TreeEstimator, BOOSTED))
    for kind in KINDS
    for derived in (derive(kind, predictor, OBJECTIVES[name]) for name in names)
}
"""All estimators by name: networks, then trees; classifiers first."""

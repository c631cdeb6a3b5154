"""The estimators' classes, derived from the registry of objectives."""

from inspect import getdoc

from wri.estimators.base import Estimator
from wri.estimators.classifiers import Classifier
from wri.estimators.regressors import Regressor
from wri.registry import OBJECTIVES, ObjectiveEntry


def derive(kind: type[Estimator], entry: ObjectiveEntry) -> type[Estimator]:
    """`WRIClassifier` from `Classifier` and the entry of WRI, with its complete help."""
    shared = (getdoc(Estimator) or "").partition("\n\n")[2]
    about = (getdoc(kind) or "").strip()
    document = f"{entry.label}: {entry.about}.\n\n{about}\n\n{shared}\n"
    namespace = {
        "__doc__": document,
        "__module__": "wri.estimators",
        "__qualname__": f"{entry.label}{kind.__name__}",
        "_objective": entry.name,
    }
    return type(f"{entry.label}{kind.__name__}", (kind,), namespace)


ESTIMATORS: dict[str, type[Estimator]] = {
    derived.__name__: derived
    for kind in (Classifier, Regressor)
    for derived in (derive(kind, entry) for entry in OBJECTIVES.values())
}
"""All of them by name, classifiers first."""

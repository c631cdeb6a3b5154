"""The estimators' classes, derived from the registry of objectives."""

from inspect import getdoc

from wri.estimators.base import Estimator
from wri.estimators.boosted import TreeEstimator
from wri.estimators.classifiers import Classifier
from wri.estimators.common import EnvironmentEstimator
from wri.estimators.regressors import Regressor
from wri.registry import BOOSTED, OBJECTIVES, ObjectiveEntry

Kind = type[Classifier] | type[Regressor]
Predictor = type[Estimator] | type[TreeEstimator]


def derive(kind: Kind, predictor: Predictor, entry: ObjectiveEntry) -> type[EnvironmentEstimator]:
    """`WRIClassifier` from `Classifier`, networks and the entry of WRI, with its complete help."""
    own, _, shared = (getdoc(predictor) or "").partition("\n\n")
    about = (getdoc(kind) or "").strip()
    trees = predictor is TreeEstimator
    first = f"{entry.label} with boosted trees" if trees else entry.label
    middle = f"{own}\n\n{about}" if trees else about
    name = f"{entry.label}{'Boosting' if trees else ''}{kind.__name__}"
    namespace = {
        "__doc__": f"{first}: {entry.about}.\n\n{middle}\n\n{shared}\n",
        "__module__": "wri.estimators",
        "__qualname__": name,
        "_objective": entry.name,
    }
    return type(name, (kind, predictor), namespace)


KINDS: tuple[Kind, ...] = (Classifier, Regressor)
ESTIMATORS: dict[str, type[EnvironmentEstimator]] = {
    derived.__name__: derived
    for predictor, names in ((Estimator, tuple(OBJECTIVES)), (TreeEstimator, BOOSTED))
    for kind in KINDS
    for derived in (derive(kind, predictor, OBJECTIVES[name]) for name in names)
}
"""All of them by name: networks, then trees; classifiers first."""

"""Estimator classes, one classifier and one regressor per objective of the registry."""

from inspect import getdoc

from wri.estimators.base import Estimator
from wri.estimators.classifiers import Classifier
from wri.estimators.regressors import Regressor
from wri.registry import OBJECTIVES, ObjectiveEntry

EXAMPLES = "\nExamples\n--------\n"
REFERENCES = "\nReferences\n----------\n"

EXAMPLES = "\nExamples\n--------\n"
REFERENCES = "\nReferences\n----------\n"


def derive(kind: type[Estimator], entry: ObjectiveEntry) -> type[Estimator]:
    """Make `WRIClassifier` from `Classifier` and the entry of WRI, with its complete help."""
    name = f"{entry.label}{kind.__name__}"
    namespace = {
        "__doc__": compose_docstring(kind, entry, name),
        "__module__": "wri.estimators",
        "__qualname__": name,
        "_objective": entry.name,
    }
    return type(name, (kind,), namespace)


def compose_docstring(kind: type[Estimator], entry: ObjectiveEntry, name: str) -> str:
    """Compose the help of an estimator.

    The text about the task and the example come from `kind`, parameters and attributes from
    `Estimator`, the references from the objective's class. The example of `kind` is written for
    WRI; its name is replaced.
    """
    shared = (getdoc(Estimator) or "").partition("\n\n")[2]
    about, _, example = (getdoc(kind) or "").partition(EXAMPLES)
    example = example.replace(f"WRI{kind.__name__}", name)
    references = (getdoc(entry.objective) or "").partition(REFERENCES)[2].partition("\n\n")[0]
    sources = f"{REFERENCES}{references}\n" if references else ""
    summary = f"{entry.label} {kind.__name__.lower()}: {entry.about}."
    return f"{summary}\n\n{about.strip()}\n\n{shared}\n{sources}{EXAMPLES}{example}\n"


ESTIMATORS: dict[str, type[Estimator]] = {
    derived.__name__: derived
    for kind in (Classifier, Regressor)
    for derived in (derive(kind, entry) for entry in OBJECTIVES.values())
}
"""All estimators by name, classifiers first."""

"""Pages of the reference: a list of the public names of every module, from its `__all__`."""

from importlib import import_module
from pathlib import Path

MODULES = (
    "wri",
    "wri.estimators",
    "wri.diagnosis",
    "wri.ood",
    "wri.datasets",
    "wri.datasets.schema",
    "wri.features",
    "wri.objectives",
    "wri.objectives.functional",
    "wri.densities",
    "wri.training",
    "wri.sweep",
    "wri.boosting",
    "wri.integrations.domainbed",
    "wri.testing",
    "wri.paper.simulations",
    "wri.paper.features",
)


def public_names(module: str) -> list[str]:
    """The names of a module's `__all__`; a name that belongs to `wri.estimators` stands there."""
    found = import_module(module)
    names = [name for name in found.__all__ if not name.startswith("__")]
    if module == "wri.estimators":
        names = [name for name in names if name not in import_module("wri").__all__]
    if module == "wri.objectives":  # classes by their labels
        names += [entry.__name__ for entry in found.OBJECTIVES.values()]
    if module == "wri.integrations.domainbed":
        names += [derived.__name__ for derived in found.ALGORITHMS.values()]
    return sorted(dict.fromkeys(names), key=str.lower)


def write_reference(folder: Path) -> None:
    """Write a page per module and the contents; pages that did not change are left alone."""
    folder.mkdir(exist_ok=True)
    for module in MODULES:
        first = (import_module(module).__doc__ or "").strip().partition("\n")[0]
        listed = "\n".join(f"   {name}" for name in public_names(module))
        _write(
            folder / f"{module}.rst",
            f"{module}\n{'=' * len(module)}\n\n{first}\n\n.. currentmodule:: {module}\n\n"
            f".. autosummary::\n   :toctree: generated\n   :nosignatures:\n\n{listed}\n",
        )
    contents = "\n".join(f"   {module}" for module in MODULES)
    _write(
        folder / "index.rst",
        "Reference\n=========\n\nAll public names, by module. Everything else is free to change.\n"
        f"\n.. toctree::\n   :maxdepth: 1\n\n{contents}\n",
    )


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)

"""Imports go one way: from the command down to the stacked parts."""

import ast
from pathlib import Path

import wri

ROOT = Path(wri.__file__).parent
MAY_IMPORT = {
    "stacked": set(),
    "densities": {"stacked"},
    "objectives": {"densities", "stacked"},
    "datasets": set(),
    "features": {"datasets"},
    "diagnosis": {"densities", "stacked", "ood", "report"},
    "ood": {"densities", "stacked"},
    "training": {"objectives", "densities", "stacked"},
    "sweep": {"training", "objectives", "stacked", "datasets", "report"},
    "report": set(),
    "estimators": {"training", "objectives", "densities", "stacked", "ood", "diagnosis"},
    "experiments": {
        "report",
        "sweep",
        "training",
        "objectives",
        "densities",
        "stacked",
        "datasets",
        "features",
        "diagnosis",
        "ood",
        "estimators",
    },
}
MAY_IMPORT["cli"] = set(MAY_IMPORT)


def imported_packages(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "wri" and len(parts) > 1:
                yield parts[1]


def test_every_package_imports_only_packages_below_it():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == set(MAY_IMPORT)
    for package, below in MAY_IMPORT.items():
        for path in (ROOT / package).glob("*.py"):
            allowed = below | {package, "cache", "errors", "progress", "rows"}
            assert set(imported_packages(path)) <= allowed, path


def test_files_stay_small():
    for path in ROOT.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path

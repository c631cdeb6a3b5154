"""Imports go one way: from the command down to the stacked parts."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import wri
from wri import datasets, features
from wri import tables as old_tables
from wri.datasets import schema, table_rows
from wri.evaluation import fitting
from wri.paper import features as paper_features
from wri.paper import simulations
from wri.tables import fitting as old_fitting
from wri.tables import reading as old_reading

ROOT = Path(wri.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"


@cache
def may_import():
    """Packages, and what each may import, from the table of the page."""
    table = {}
    for name, below in re.findall(
        r"^\| `(\w+(?:/\w+)*)/` \| .* \| (.*) \|$", PAGE.read_text(), re.MULTILINE
    ):
        named = {part.partition(" (")[0] for part in below.split(", ")}
        table[name] = {*table} if below == "everything above" else named - {"–"}
    return table


def below_all():
    """Modules below all packages, from the second table of the page."""
    rows = re.findall(r"^\| (`\w+\.py`.*?) \|", PAGE.read_text(), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)\.py`", row)}


@cache
def nodes_of(path):
    """Parts of a module's syntax, parsed once for all tests."""
    return list(ast.walk(ast.parse(path.read_text())))


def layer_of(parts):
    """Package of a module's parts: the longest of the table, as report/pages before report."""
    names = ["/".join(parts[:k]) for k in range(len(parts), 0, -1)]
    return next((name for name in names if name in may_import()), parts[0])


def imported_packages(path):
    for node in nodes_of(path):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "wri" and parts[1:] not in ([], ["__version__"]):
                yield layer_of(parts[1:])


def test_every_package_imports_only_packages_below_it():
    table = may_import()
    packages = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.rglob("*/__init__.py")}
    assert {name for name in packages if "/" not in name} == {n for n in table if "/" not in n}
    assert set(table) <= packages
    above = set(
        re.findall(r"^Above all packages stands `(\w+)\.py`", PAGE.read_text(), re.MULTILINE)
    )
    assert {path.stem for path in ROOT.glob("*.py")} == {"__init__", *above, *below_all()}
    for path in ROOT.rglob("*/*.py"):
        package = layer_of(path.relative_to(ROOT).parts[:-1])
        allowed = table[package] | {package, *below_all()}
        assert set(imported_packages(path)) <= allowed, path


def test_packages_import_one_way():
    table, done = may_import(), set()
    while done < set(table):
        ready = {name for name, below in table.items() if below <= done} - done
        assert ready, f"these packages import each other: {sorted(set(table) - done)}"
        done |= ready


def check_imports(*steps):
    """In a new process: after each statement none of the packages beside it is imported."""
    code = "import sys\n" + "".join(
        f"{statement}\nfound = {set(late)} & {{*sys.modules}}\nassert not found, found\n"
        for statement, late in steps
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_registries_and_the_command_wait_for_no_heavy_package():
    heavy = ("torch", "pandas", "matplotlib", "scipy", "sklearn", "lightgbm")
    below = ", ".join(f"wri.{name}" for name in sorted(below_all()))
    check_imports(
        ("import wri", heavy),
        ("import wri.registry, wri.presets, wri.measures, wri.cli", heavy),
        (f"import {below}", ("torch",)),
    )


@pytest.mark.slow
def test_data_sets_do_not_wait_for_pandas_and_estimators_not_for_matplotlib():
    check_imports(
        ("import wri.datasets.catalogue", ("pandas",)),
        ("from wri import WRIClassifier, diagnosis, tables", ("matplotlib",)),
        ("assert 'torch' in sys.modules", ()),
    )


def test_the_library_never_imports_the_paper():
    for path in ROOT.rglob("*.py"):
        if path.relative_to(ROOT).parts[0] not in ("paper", "cli"):
            assert "paper" not in set(imported_packages(path)), path


@pytest.mark.parametrize(("old", "new"), [(datasets, simulations), (features, paper_features)])
def test_names_that_moved_to_the_paper_are_found_where_they_were(old, new):
    assert all(getattr(old, name) is getattr(new, name) for name in new.__all__)
    with pytest.raises(AttributeError, match=f"module '{old.__name__}' has no attribute 'other'"):
        _ = old.other


def test_names_that_left_tables_are_found_where_they_were():
    assert old_tables.TableSchema is schema.TableSchema
    assert old_reading.read_rows is table_rows.read_rows
    assert old_fitting.fit_table is fitting.fit_table
    assert old_fitting.FitOptions is fitting.FitOptions


def imported_names(node):
    """Modules that a statement or a call imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    if isinstance(node, ast.Call):
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called.endswith("import_module"):
            return [each.value for each in node.args if isinstance(each, ast.Constant)]
    return []


def test_ray_is_imported_by_the_child_that_is_connected_to_it_and_nowhere_else():
    found = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        for node in nodes_of(path)
        if "ray" in {name.split(".")[0] for name in imported_names(node)}
    }
    assert found == {"jobs/ray_driver.py"}


def test_processes_and_pools_are_started_by_jobs_only():
    pools = {"ThreadPoolExecutor", "ProcessPoolExecutor", "Parallel", "Popen", "Pool"}
    for path in (path for path in ROOT.rglob("*.py") if path.parent.name != "jobs"):
        used = {node.attr for node in nodes_of(path) if isinstance(node, ast.Attribute)}
        used |= {node.id for node in nodes_of(path) if isinstance(node, ast.Name)}
        assert not used & pools, path


def docstring_lines(node):
    """Number of lines of the docstring of a module, class or function."""
    first = node.body[0] if node.body else None
    has = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return first.end_lineno - first.lineno + 1 if has and ast.get_docstring(node) else 0


def test_files_stay_small_apart_from_their_docstrings():
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        nodes = [node for node in nodes_of(path) if isinstance(node, documented)]
        code = len(text.splitlines()) - sum(map(docstring_lines, nodes))
        assert code <= 400, path


def functions_and_records():
    for path in sorted(ROOT.rglob("*.py")):
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield path, node


def test_functions_fit_on_a_screen():
    for path, node in functions_and_records():
        if isinstance(node, ast.FunctionDef):
            length = node.end_lineno - node.lineno - docstring_lines(node)
            assert length < 60, (path, node.name)


def test_records_of_more_than_four_fields_are_made_by_keyword():
    for path, node in functions_and_records():
        kinds = [ast.unparse(part) for part in node.decorator_list]
        if not isinstance(node, ast.ClassDef):
            continue
        kinds += [ast.unparse(base) for base in node.bases]
        if any("kw_only" in kind for kind in kinds) or not any(
            word in kind for kind in kinds for word in ("dataclass", "NamedTuple")
        ):
            continue
        fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
        names = [ast.unparse(part.annotation) for part in fields]
        names = [name for name in names if "ClassVar" not in name]
        positional = names.index("KW_ONLY") if "KW_ONLY" in names else len(names)
        assert positional <= 4, (path, node.name)


def test_a_class_name_stands_in_one_module():
    modules = defaultdict(set)
    for path in ROOT.rglob("*.py"):
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                modules[node.name].add(path.relative_to(ROOT).as_posix())
    assert {name: found for name, found in modules.items() if len(found) > 1} == {}

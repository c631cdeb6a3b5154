"""Help texts are complete, and their examples show what really comes out."""

import ast
import dataclasses
import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest
from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate

import wri

ROOT = Path(wri.__file__).parent
PUBLIC = (
    *("wri", "wri.objectives", "wri.objectives.functional", "wri.densities", "wri.training"),
    *("wri.datasets", "wri.features", "wri.ood", "wri.diagnosis", "wri.estimators", "wri.sweep"),
    *("wri.datasets.schema", "wri.integrations.domainbed", "wri.boosting", "wri.testing"),
    *("wri.paper.simulations", "wri.paper.features"),
)
EXAMPLES_NOT_RUN = {
    "from_images": "its result needs a folder of pictures",
    "load_fashion_mnist": "its result needs 70,000 pictures",
    "load_heart": "its result needs files of UCI or a network",
    "load_images": "its result needs sets of photographs that cannot be downloaded freely",
    "load_mnist": "its result needs 70,000 digits or a network",
    "where_fashion_mnist": "its result depends on the machine",
    "where_heart": "its result depends on the machine",
    "where_images": "its result depends on the machine",
    "where_mnist": "its result depends on the machine",
}
FORM = {
    *("GL03", "GL05", "GL06", "GL07", "GL08"),  # blank lines, tabs, sections and their order
    *("SS02", "SS03", "SS04", "SS06"),  # one line that begins with a capital and ends with a dot
    *("PR06", "PR07", "PR09", "PR10"),  # types by their Python names, descriptions, spaces
    *("RT03", "RT05", "YD01"),
}
"""Rules of numpydoc's own validator that hold here."""


def public_objects(module):
    """Classes and functions by name; constants and types of annotations have no docstring."""
    found = {name: getattr(import_module(module), name) for name in import_module(module).__all__}
    return {
        name: each
        for name, each in found.items()
        if inspect.isclass(each) or inspect.isfunction(each)
    }


def public_methods(kind):
    """Methods that a class of ours has, with those that it inherits from other classes of ours."""
    fields = getattr(kind, "__dataclass_fields__", {})  # a function may be a default
    for name in (name for name in dir(kind) if name not in fields and name[0] != "_"):
        each = getattr(kind, name)
        ours = str(getattr(each, "__module__", "")).startswith("wri.")
        if callable(each) and ours and not inspect.isclass(each):
            yield name, each


def parameters_of(thing):
    """Parameters of a signature; none of a protocol or of an exception."""
    if getattr(thing, "_is_protocol", False):
        return []
    try:
        found = list(inspect.signature(thing).parameters.values())
    except ValueError:
        return []
    return [each for each in found if each.name not in ("self", "cls")]


def is_record(thing):
    return dataclasses.is_dataclass(thing) or hasattr(thing, "_fields")


def described_parameters(thing, document):
    """Entries of the docstring for the parameters; results list theirs as attributes."""
    if document["Parameters"] or not is_record(thing):
        return document["Parameters"]
    return document["Attributes"][: len(parameters_of(thing))]


def stated_name(parameter):
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    return stars.get(parameter.kind, "") + parameter.name


def default_problem(parameter, stated):
    """What is wrong with a stated default; nothing where it is right."""
    optional = parameter.default is not parameter.empty
    if optional != ("default=" in stated):
        return f"{parameter.name} {'has a' if optional else 'has no'} default, not {stated!r}"
    try:
        value = ast.literal_eval(stated.partition("default=")[2])
    except (ValueError, SyntaxError):  # a name, or no default
        return ""
    plain = isinstance(parameter.default, bool | int | float | str | tuple | None)
    return (
        f"{parameter.name} is {parameter.default!r}" if plain and value != parameter.default else ""
    )


def problems(name, thing, has_example):
    """What a docstring lacks."""
    text = inspect.getdoc(thing)
    if not text:
        return [f"{name}: no docstring"]
    document = NumpyDocString(text)
    entries = described_parameters(thing, document)
    wanted = parameters_of(thing)
    found = []
    if [entry.name for entry in entries] != [stated_name(each) for each in wanted]:
        found.append(f"parameters {[entry.name for entry in entries]}")
    else:
        found += [f"{entry.name} has no type" for entry in entries if not entry.type]
        pairs = zip(wanted, entries, strict=True)
        found += filter(None, (default_problem(each, entry.type) for each, entry in pairs))
    if not inspect.isclass(thing):
        gives = inspect.signature(thing).return_annotation not in (None, "None")
        if gives != bool(document["Returns"] or document["Yields"]):
            found.append("Returns is missing" if gives else "it returns None")
    if has_example and not any(">>>" in line for line in document["Examples"]):
        found.append("no example")
    return [f"{name}: {each}" for each in found]


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_has_a_complete_docstring(module):
    found = []
    for name, thing in public_objects(module).items():
        found += problems(name, thing, has_example=True)
        if inspect.isclass(thing):
            for method, function in public_methods(thing):
                found += problems(f"{name}.{method}", function, has_example=False)
    assert found == []


def test_classes_behind_a_registry_are_documented_too():
    objectives = import_module("wri.objectives").OBJECTIVES
    algorithms = import_module("wri.integrations.domainbed").ALGORITHMS
    found = [problems(name, kind, has_example=False) for name, kind in objectives.items()]
    found += [problems(name, kind, has_example=True) for name, kind in algorithms.items()]
    assert [each for each in found if each] == []
    for name, kind in objectives.items():
        assert NumpyDocString(inspect.getdoc(kind))["References"], name


@pytest.mark.parametrize("module", PUBLIC)
def test_docstrings_have_the_form_of_numpydoc(module):
    found = []
    for name in public_objects(module):
        errors = validate(f"{module}.{name}")["errors"]
        found += [f"{name}: {code} {text}" for code, text in errors if code in FORM]
    assert found == []


def test_every_module_says_in_its_first_line_what_it_is():
    for path in ROOT.rglob("*.py"):
        text = ast.get_docstring(ast.parse(path.read_text()))
        if path.name != "__main__.py":
            first = text.split("\n\n")[0]
            assert "\n" not in first, path
            assert re.search(r"[.?]$", first), path


def run_examples(module, thing, name):
    """Run the examples of one object; how many there were."""
    finder = doctest.DocTestFinder(recurse=False)
    (test,) = finder.find(thing, name, module=module, globs={})
    runner = doctest.DocTestRunner(verbose=False)
    told = []
    runner.run(test, out=told.append)
    assert runner.failures == 0, "".join(told)
    return len(test.examples)


def modules_with_examples():
    paths = [path for path in sorted(ROOT.rglob("*.py")) if ">>> " in path.read_text()]
    parts = [path.relative_to(ROOT.parent).with_suffix("").parts for path in paths]
    return [".".join(each).removesuffix(".__init__") for each in parts]


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    """The folder in which examples run, with a cache beside it."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("WRI_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_show_what_comes_out_and_leave_no_files(name, empty_folder):
    if name.startswith("wri.boosting"):
        pytest.importorskip("lightgbm", reason="boosted trees need LightGBM ([boosting])")
    module = import_module(name)
    tests = doctest.DocTestFinder().find(module)
    assert any(test.examples for test in tests)
    for test in tests:
        runner, told = doctest.DocTestRunner(verbose=False), []
        runner.run(test, out=told.append)
        assert runner.failures == 0, "".join(told)
    assert list(empty_folder.iterdir()) == []


@pytest.mark.parametrize("name", wri.ESTIMATORS)
@pytest.mark.slow
def test_the_example_of_each_estimator_runs(name, empty_folder):
    if "Boosting" in name:
        pytest.importorskip("lightgbm", reason="boosted trees need LightGBM ([boosting])")
    module = import_module("wri.estimators")
    assert run_examples(module, getattr(module, name), name) > 5


def test_examples_are_left_out_for_a_reason_only():
    left_out, texts = set(), [path.read_text() for path in ROOT.rglob("*.py")]
    for text in (text for text in texts if "doctest: +SKIP" in text):
        for node in ast.walk(ast.parse(text)):
            has_docstring = isinstance(node, ast.FunctionDef | ast.ClassDef)
            if has_docstring and "doctest: +SKIP" in (ast.get_docstring(node) or ""):
                left_out.add(node.name)
    assert left_out == set(EXAMPLES_NOT_RUN)

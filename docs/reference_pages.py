"""Pages of the reference, written from the package when the site is built.

The Python reference is ordered by task: a public name of `MODULES` belongs to the first task one of
whose patterns it matches. The command line comes from its help, presets from their tables.
"""

import re
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

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


class Task(NamedTuple):
    """A page of the reference: file, title, a line for the contents, and patterns of names."""

    page: str
    title: str
    about: str
    patterns: tuple[str, ...]


TASKS = (
    Task(
        "fit",
        "Fit a model to a table",
        "`WRIClassifier`, `WRIRegressor`, their plain counterparts, pipelines, and loading.",
        (
            *("wri.WRIClassifier", "wri.WRIRegressor", "wri.ERMClassifier", "wri.ERMRegressor"),
            *("wri.make_pipeline", "wri.load", "wri.estimators.*", "wri.datasets.schema.*"),
            "wri.InputError",
        ),
    ),
    Task(
        "trees",
        "Grow boosted trees",
        "`WRIBoostingClassifier` and the other estimators with trees; their parts.",
        ("wri.WRIBoosting*", "wri.ERMBoosting*", "wri.*Boosting*", "wri.boosting.*"),
    ),
    Task(
        "pictures",
        "Classify pictures",
        "`PictureClassifier`, folders of pictures, backbones and features.",
        (
            *("wri.PictureClassifier", "wri.features.*", "wri.datasets.[Ii]mage*"),
            *("wri.datasets.IMAGE_SETS", "wri.datasets.*_images", "wri.datasets.Picture"),
        ),
    ),
    Task(
        "baselines",
        "Compare with other objectives",
        "A classifier and a regressor for each of the fifteen other baselines.",
        ("wri.*Classifier", "wri.*Regressor"),
    ),
    Task(
        "diagnose",
        "Diagnose sites and models",
        "One function per question, and the answers that they return.",
        (
            *("wri.diagnosis.environment_overlap", "wri.diagnosis.changing_features"),
            *("wri.diagnosis.design_position", "wri.diagnosis.risk_gaps"),
            *("wri.diagnosis.stress_test", "wri.diagnosis.general_position", "wri.diagnosis.*"),
        ),
    ),
    Task(
        "evidence",
        "Measure evidence",
        "Densities of training rows, thresholds, and measures of scores.",
        ("wri.ood.*",),
    ),
    Task(
        "data",
        "Load or simulate data",
        "Simulated hospitals, heart disease, MNIST, tables from files.",
        (
            *("wri.datasets.hospitals", "wri.datasets.joined", "wri.datasets.load_*"),
            *("wri.datasets.read_table", "wri.datasets.Environment", "wri.datasets.*"),
        ),
    ),
    Task(
        "loop",
        "Use a penalty in your own training loop",
        "Plain functions on tensors: `wri_penalty`, `vrex_penalty`, `irm_penalty` and others.",
        ("wri.objectives.functional.wri_penalty", "wri.objectives.functional.*"),
    ),
    Task(
        "objective",
        "Write an objective or a density",
        "The contracts, all objectives and densities of the package, registration, checks.",
        (
            *("wri.register", "wri.estimator", "wri.testing.*", "wri.objectives.Objective"),
            *("wri.objectives.WRI", "wri.objectives.*", "wri.densities.Density"),
            "wri.densities.*",
        ),
    ),
    Task(
        "runs",
        "Train many runs at once",
        "Model specifications, runs, stacks and records.",
        ("wri.training.ModelSpec", "wri.training.Run", "wri.training.train", "wri.training.*"),
    ),
    Task(
        "sweep",
        "Run a sweep",
        "Plan, store, back ends, selections and the best model.",
        ("wri.sweep.Sweep*", "wri.sweep.run_sweep", "wri.sweep.Store", "wri.sweep.*"),
    ),
    Task(
        "domainbed",
        "Work with DomainBed",
        "Its result folders, and an algorithm per objective for its training loop.",
        (
            *("wri.integrations.domainbed.read_sweep", "wri.integrations.domainbed.build_tables"),
            *("wri.integrations.domainbed.export_runs", "wri.integrations.domainbed.WRIAlgorithm"),
            "wri.integrations.domainbed.*",
        ),
    ),
    Task(
        "paper",
        "The paper's data and features",
        "Coloured and mirrored digits, the linear-Gaussian regression, PCA, autoencoder, CNN.",
        ("wri.paper.simulations.*", "wri.paper.features.*"),
    ),
)


CONSTANTS = {
    "wri.estimators.ESTIMATORS": "Classes of the estimators by name.",
    "wri.features.BACKBONES": "Functions that load a backbone, by its name.",
    "wri.datasets.IMAGE_SETS": "Published sets of pictures by name.",
    "wri.datasets.BUILTIN": "Built-in data sets by name.",
    "wri.objectives.OBJECTIVES": "Classes of the objectives by name.",
    "wri.densities.DENSITIES": "Densities that can be saved, by name.",
    "wri.sweep.SELECTIONS": "Selection methods by name.",
    "wri.integrations.domainbed.ALGORITHMS": "Algorithms by DomainBed's names.",
    "wri.integrations.domainbed.METHODS": "DomainBed's selection methods.",
    "wri.paper.simulations.COLOURED_MNIST": "Settings of the ColoredMNIST family by name.",
}
"""Tables of the package, which have no help of their own."""


def public_names(module: str) -> list[str]:
    """The names of a module's `__all__`, without those that `wri` offers itself."""
    found = import_module(module)
    names = [name for name in found.__all__ if not name.startswith("__")]
    if module in ("wri.estimators", "wri.objectives"):
        names = [name for name in names if name not in import_module("wri").__all__]
    if module == "wri.objectives":  # classes by their labels
        names += [entry.__name__ for entry in found.OBJECTIVES.values()]
    if module == "wri.integrations.domainbed":
        names += [derived.__name__ for derived in found.ALGORITHMS.values()]
    return sorted(dict.fromkeys(names), key=str.lower)


def names_by_task() -> dict[str, list[str]]:
    """Full names of each task, by its page."""
    found: dict[str, list[str]] = {task.page: [] for task in TASKS}
    for module in MODULES:
        for name in public_names(module):
            found[_page_of(f"{module}.{name}")].append(f"{module}.{name}")
    for task in TASKS:  # in the order of the patterns
        found[task.page].sort(key=lambda name: _place(task, name) or 0)
    return found


def _page_of(name: str) -> str:
    for task in TASKS:
        if _place(task, name) is not None:
            return task.page
    raise LookupError(f"no task of the reference has {name}; add it to TASKS")


def _place(task: Task, name: str) -> int | None:
    for place, pattern in enumerate(task.patterns):
        if name.count(".") == pattern.count(".") and fnmatchcase(name, pattern):
            return place
    return None


def write_reference(folder: Path) -> None:
    """Write all pages and the contents; pages that did not change are left alone."""
    folder.mkdir(exist_ok=True)
    for page, names in names_by_task().items():
        task = next(task for task in TASKS if task.page == page)
        _write(folder / f"{page}.rst", _task_page(task, names))
    _write(folder / "command_line.md", command_line_page())
    _write(folder / "presets.md", presets_page())
    _write(folder / "index.md", _contents())


def _task_page(task: Task, names: list[str]) -> str:
    parts = [task.title, "=" * len(task.title), "", task.about, ""]
    by_module: dict[str, list[str]] = {}
    for name in names:
        module, _, own = name.rpartition(".")
        by_module.setdefault(module, []).append(own)
    for module, found in by_module.items():
        first = (import_module(module).__doc__ or "").strip().partition("\n")[0]
        parts += [module, "-" * len(module), "", first[:1].upper() + first[1:], ""]
        parts += [f".. currentmodule:: {module}", ""]
        parts += [".. autosummary::", "   :toctree: generated", "   :nosignatures:", ""]
        constants = [name for name in found if f"{module}.{name}" in CONSTANTS]
        parts += [*(f"   {name}" for name in found if name not in constants), ""]
        parts += [f"``{name}``: {CONSTANTS[f'{module}.{name}']}\n" for name in constants]
    return "\n".join(parts)


def _contents() -> str:
    tasks = "\n".join(f"| [{task.title}]({task.page}.rst) | {task.about} |" for task in TASKS)
    pages = "\n".join(f"{task.title} <{task.page}>" for task in TASKS)
    return (
        "# Reference\n\n## Command line\n"
        "[Commands and options](command_line.md), from the help of `wri`.\n\n"
        "## Python, by task\n"
        "All public names. Everything else is free to change.\n\n"
        f"| task | what is there |\n|---|---|\n{tasks}\n\n"
        "## Settings\n"
        "[Presets and hyper-parameters](presets.md): the defaults of every objective.\n\n"
        "```{toctree}\n:hidden:\n\nCommand line <command_line>\n```\n\n"
        f"```{{toctree}}\n:hidden:\n:caption: Python, by task\n\n{pages}\n```\n\n"
        "```{toctree}\n:hidden:\n:caption: Settings\n\nPresets <presets>\n```\n"
    )


def command_line_page() -> str:
    """The commands of `wri` with their options, from their help."""
    import typer

    from wri.cli import app

    root = typer.main.get_command(app)
    parts = ["# Command line", "", "What `wri COMMAND --help` says, on one page.", ""]
    commands = list(_commands(root, "wri"))
    parts += [f"- [{name}](#{name.replace(' ', '-')})" for name, _ in commands] + [""]
    for name, command in commands:
        parts += [f"({name.replace(' ', '-')})=", f"## {name}", "", *_command(name, command)]
    return "\n".join(parts) + "\n"


def _commands(group, name):
    """Commands in the order of the help; those of `wri reproduce` stand in its own section."""
    for own, command in group.commands.items():
        if own == "results":  # `wri results STORE` is its command `show`
            for sub, each in command.commands.items():
                yield f"{name} {own} {sub}".removesuffix(" show"), each
        else:
            yield f"{name} {own}", command


def _command(name: str, command) -> list[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    shown = " ".join(each.name.upper() + ("..." if each.nargs < 0 else "") for each in arguments)
    more = " NAME" if name == "wri reproduce" else ""
    parts = ["```", f"{name}{more} [OPTIONS] {shown}".rstrip(), "```", "", _help_text(command), ""]
    if name == "wri reproduce":
        return parts + _experiments(command)
    rows = [
        *((f"`{each.name.upper()}`", _meaning(each)) for each in arguments),
        *map(_option, _options(command)),
    ]
    return parts + _table(("option", "meaning"), rows)


def _experiments(group) -> list[str]:
    """The experiments, then each option with the experiments that have it."""
    named = dict(group.commands)
    parts = _table(("NAME", "shows"), [(f"`{name}`", _first(each)) for name, each in named.items()])
    rows: dict[tuple[str, str], list[str]] = {}
    for name, each in named.items():
        for option in _options(each):
            rows.setdefault(_option(option), []).append(name)
    table = [
        (*row, "all" if len(found) == len(named) else ", ".join(f"`{name}`" for name in found))
        for row, found in rows.items()
    ]
    return parts + _table(("option", "meaning", "experiments"), table)


def _options(command) -> list:
    return [
        each
        for each in command.params
        if each.param_type_name == "option" and each.name != "help" and not each.hidden
    ]


def _option(option) -> tuple[str, str]:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    return names, _meaning(option)


def _meaning(option) -> str:
    """The help of an option with its default."""
    value = option.default
    if option.required:
        return f"{_prose(option.help)} *Required.*"
    if value is None or isinstance(value, bool) or callable(value) or value in ((), [], ""):
        return _prose(option.help)
    return f"{_prose(option.help)} Default: `{getattr(value, 'value', value)}`."


def _prose(text: str | None) -> str:
    """Help as Markdown: names of options are code, and a star is a star."""
    parts = re.split(r"(`[^`]*`)", text or "")
    parts[::2] = [
        re.sub(r"(?<![\w-])(--[a-z][\w-]*)", r"`\1`", part.replace("*", "\\*"))
        for part in parts[::2]
    ]
    return "".join(parts)


def _first(command) -> str:
    return (command.get_short_help_str(limit=400) or "").strip()


def _help_text(command) -> str:
    """The help as Markdown; examples on lines of their own become one block."""
    text = re.sub(r"\x08\n?", "", command.help or "").strip()
    paragraphs = [" ".join(each.split()) for each in re.split(r"\n\s*\n", text)]
    parts: list[str] = []
    for each in paragraphs:
        if re.fullmatch(r"`wri [^`]*`", each):
            line = each.strip("`")
            if parts and parts[-1].startswith("```"):
                parts[-1] = parts[-1].removesuffix("\n```") + f"\n{line}\n```"
            else:
                parts.append(f"```\n{line}\n```")
        else:
            parts.append(_prose(each))
    return "\n\n".join(parts)


def presets_page() -> str:
    """Presets, and the hyper-parameters of every objective with their defaults."""
    from wri.objectives import OBJECTIVES
    from wri.presets import PRESETS

    common = OBJECTIVES["erm"].hyperparameters()
    own = {
        each: [one for one in each.hyperparameters() if one not in common]
        for each in OBJECTIVES.values()
    }
    objectives = [each for each, found in own.items() if found]
    parts = [
        "# Presets and hyper-parameters",
        "",
        "A model specification takes what is not given from its preset. Numbers that a preset does "
        "not set are those of `domainbed`.",
        "",
        "- [Presets](#presets)",
        "- [Every objective](#every-objective)",
        *(f"- [{each.__name__}](#{each.__name__.lower()})" for each in objectives),
        "",
        "## Presets",
    ]
    rows = [
        (f"`{name}`", each.about, str(each.steps), _hidden(each), _yes(each.standardise))
        for name, each in PRESETS.items()
    ]
    parts += _table(("preset", "for", "steps", "hidden layers", "columns standardised"), rows)
    parts += ["## Every objective", *_hyperparameters(common)]
    for each in objectives:
        parts += [f"## {each.__name__}", *_hyperparameters(own[each])]
    return "\n".join(parts) + "\n"


def _hidden(preset) -> str:
    if preset.linear:
        return "none, (32, 16) where an objective needs some"
    two = preset.layers == 2
    return "half and a quarter of the columns, at least (16, 8)" if two else "half, at least 16"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _hyperparameters(declared) -> list[str]:
    rows = []
    for each in declared:
        settings = {name: setting.default for name, setting in each.settings.items()}
        first = settings.pop("domainbed", None)
        others = ", ".join(f"{name} {_number(value)}" for name, value in settings.items())
        rows.append((f"`{each.name}`", each.meaning, _number(first), others))
    return _table(("name", "meaning", "domainbed", "other presets"), rows)


def _number(value) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, int | float) else "by the size of the fit"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [head, ("---",) * len(head), *rows]
    cells = [[re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in line] for line in lines]
    return [*("| " + " | ".join(line) + " |" for line in cells), ""]


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)

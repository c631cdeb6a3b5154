"""From raw rows to a fitted model with everything that is known about it.

rows ─► schema ─► each site held out: preprocessing, ERM, WRI on the others ─► scores
     ─► the same models on all rows ─► the one that is kept
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from wri.errors import InputError, check_option
from wri.estimators import ESTIMATORS
from wri.estimators.choice import RULES, Rule
from wri.estimators.columns import Column
from wri.estimators.pipeline import make_pipeline
from wri.estimators.specs import LADDER, PenaltyWeight, has_penalty_weight
from wri.progress import Progress, silent
from wri.registry import ALGORITHMS
from wri.tables.choosing import KeptModel, choose_algorithm, keep_without_comparison
from wri.tables.held_out import HeldOutScores, SiteData, hold_out_sites
from wri.tables.reading import TableRows
from wri.tables.schema import TableSchema

DEFAULT = ("erm", "wri")
FEWEST_SITES = 3  # with fewer none can be held out and two still be compared


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What is trained and how one of it is kept."""

    algorithms: tuple[str, ...] = DEFAULT
    choose: Rule = "average"
    fast: bool = False  # no site is held out
    hidden: tuple[int, ...] | None = None
    steps: int | None = None
    penalty_weight: float | None = None  # chosen by sites left out when None
    seed: int = 0
    device: str = "auto"
    jobs: int = -1

    def check(self) -> None:
        """An error for what does not exist."""
        for name in self.algorithms:
            check_option("--algorithms", name, tuple(ALGORITHMS))
        if not self.algorithms or len({*self.algorithms}) < len(self.algorithms):
            raise InputError("--algorithms must name different algorithms, one at least")
        check_option("--choose", self.choose, RULES)

    def make_model(self, algorithm: str, classes: bool) -> Any:
        """An unfitted estimator."""
        entry = ALGORITHMS[algorithm]
        kind = ESTIMATORS[f"{entry.estimator}{'Classifier' if classes else 'Regressor'}"]
        weight: PenaltyWeight = "auto" if self.penalty_weight is None else self.penalty_weight
        given: dict[str, Any] = {
            "penalty_weight": weight if has_penalty_weight(entry.objective) else None,
            "choose": self.choose,
            "random_state": self.seed,
            "n_jobs": self.jobs,
        }
        if entry.boosted:
            rounds = {} if self.steps is None else {"rounds": self.steps}
            return kind(**given, **rounds)
        return kind(**given, hidden=self.hidden, steps=self.steps, device=self.device)

    def make_models(self, classes: bool) -> dict[str, Any]:
        """One for each algorithm."""
        return {name: self.make_model(name, classes) for name in self.algorithms}

    def cost(self, algorithm: str, sites: int) -> int:
        """Parts of the work, roughly: runs, those of a penalty counted twice."""
        if not has_penalty_weight(ALGORITHMS[algorithm].objective):
            return 1
        if self.penalty_weight is not None:
            return 2
        return 2 * (len(LADDER) * sites + 1) if sites >= FEWEST_SITES else 2


@dataclass(frozen=True, eq=False, kw_only=True)
class TableFit:
    """Models of all algorithms on all rows, the one that is kept, and how they held elsewhere."""

    data: SiteData
    environments: Mapping[str, int]  # rows by name
    classes: bool
    options: FitOptions
    schema: TableSchema | None  # None where rows are features of pictures
    held_out: HeldOutScores | None  # None with two sites, or where it was skipped
    models: Mapping[str, Any]  # by algorithm, with their preprocessing
    kept: KeptModel
    warnings: tuple[str, ...]
    seconds: float

    @property
    def model(self) -> Any:
        """The one that is kept."""
        return self.models[self.kept.algorithm]

    @property
    def estimator(self) -> Any:
        """The kept model without its preprocessing."""
        return last_step(self.model)

    def prepared(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """All rows as the models see them, and the names of the columns."""
        return prepared_columns(self.model, self.data.X)


def last_step(model: Any) -> Any:
    """The estimator at the end of a pipeline, or the model itself."""
    return model.steps[-1][1] if isinstance(model, Pipeline) else model


def prepared_columns(model: Any, X: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """Rows behind a model's preprocessing, `[n, D]`, and the names of their columns."""
    if not isinstance(model, Pipeline):
        return np.asarray(X), tuple(f"feature {k}" for k in range(np.shape(X)[1]))
    head = Pipeline(model.steps[:-1])
    return np.asarray(head.transform(X)), tuple(map(str, head.get_feature_names_out()))


def fit_table(
    rows: TableRows,
    options: FitOptions,
    *,
    schema: TableSchema | None = None,
    progress: Progress = silent,
) -> TableFit:
    """Fit models to raw rows, and find out how they hold at sites that they have not seen.

    Parameters
    ----------
    rows
        From `read_rows`.
    options
        What is trained.
    schema
        What the columns hold, from `find_schema`; found out when None.
    progress
        Called with parts of the work done and in all.

    Returns
    -------
    TableFit
        `model` is a fitted pipeline with `predict`, `verdict` and `save`.
    """
    options.check()
    schema = find_schema(rows) if schema is None else schema
    data = SiteData(rows.frame, rows.y, rows.groups, rows.blocks)
    return fit_sites(
        data,
        rows.environments,
        options,
        classes=rows.task == "classes",
        schema=schema,
        progress=progress,
    )


def find_schema(rows: TableRows, kinds: Mapping[str, str] | None = None) -> TableSchema:
    """What the columns hold; an error where somebody must decide first."""
    schema = TableSchema.infer(rows.frame, kinds=kinds)
    schema.check()
    aside = tuple(Column(name, "left out") for name in rows.left_out)  # a new table may have them
    columns = (*schema.columns, *aside)
    return replace(schema, columns=columns, target=rows.target, environment=rows.environment)


def fit_sites(
    data: SiteData,
    environments: Mapping[str, int],
    options: FitOptions,
    *,
    classes: bool,
    schema: TableSchema | None = None,
    progress: Progress = silent,
) -> TableFit:
    """The same for rows that are read already, numbers where there is no schema.

    Parameters
    ----------
    data
        Rows, targets and sites.
    environments
        Rows of every site by name, in order.
    options
        What is trained.
    classes
        Whether targets are classes.
    schema
        What the columns hold.
    progress
        Called with parts of the work done and in all.
    """
    start, sites = perf_counter(), len(environments)
    last = {name: options.cost(name, sites) for name in options.algorithms}
    inner = {name: options.cost(name, sites - 1) for name in options.algorithms}
    outer = not options.fast and sites >= FEWEST_SITES
    before = sites * sum(inner.values()) if outer else 0
    total = before + sum(last.values())
    held = None
    if outer:
        report = lambda done, _: progress(done, total)  # noqa: E731
        held = _hold_out(data, environments, options, classes, schema, inner, report)
    models, said = _fit_on_all(
        data, options, classes, schema, last, lambda done: progress(before + done, total)
    )
    if held is None:
        ends = {name: last_step(model) for name, model in models.items()}
        kept = keep_without_comparison(options.algorithms, sites, ends)
    else:
        kept = choose_algorithm(held, options.choose)
    return TableFit(
        data=data,
        environments=environments,
        classes=classes,
        options=options,
        schema=schema,
        held_out=held,
        models=models,
        kept=kept,
        warnings=tuple(dict.fromkeys([*said, *kept.warnings])),
        seconds=perf_counter() - start,
    )


def _hold_out(
    data: SiteData,
    environments: Mapping[str, int],
    options: FitOptions,
    classes: bool,
    schema: TableSchema | None,
    costs: Mapping[str, int],
    progress: Progress,
) -> HeldOutScores:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what matters is said of the models on all rows
        return hold_out_sites(
            data,
            tuple(environments),
            partial(options.make_models, classes),
            None if schema is None else lambda: Pipeline(_steps(schema)),
            classes=classes,
            costs=costs,
            progress=progress,
            seed=options.seed,
        )


def _steps(schema: TableSchema) -> list[tuple[str, Any]]:
    return [(type(step).__name__.lower(), step) for step in schema.make_preprocessing()]


def _fit_on_all(
    data: SiteData,
    options: FitOptions,
    classes: bool,
    schema: TableSchema | None,
    costs: Mapping[str, int],
    advance: Any,
) -> tuple[dict[str, Any], Sequence[str]]:
    """Models on all rows, and what they warn of."""
    models, done = {}, 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name, estimator in options.make_models(classes).items():
            steps = [] if schema is None else schema.make_preprocessing()
            model = make_pipeline(*steps, estimator) if steps else estimator
            models[name] = model.fit(data.X, data.y, groups=data.groups)
            done += costs[name]
            advance(done)
    ours = [str(each.message) for each in caught if issubclass(each.category, UserWarning)]
    return models, list(dict.fromkeys(ours))

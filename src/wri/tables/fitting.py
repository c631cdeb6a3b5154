"""Fit of models to raw rows, with each site held out in turn.

rows ─► schema ─► each site held out: preprocessing, ERM, WRI on the others ─► scores
     ─► the same models on all rows ─► the one that is kept
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from wri.errors import InputError, check_option
from wri.estimators import ESTIMATORS
from wri.estimators.choice import DEFAULT_RULE, RULES, Rule
from wri.estimators.columns import Column
from wri.estimators.pipeline import make_pipeline
from wri.estimators.specs import LADDER, PenaltyWeight, has_penalty_weight
from wri.progress import Progress, silent
from wri.registry import ALGORITHMS
from wri.tables.choosing import KeptModel, choose_algorithm, keep_without_comparison
from wri.tables.column_names import readable_names
from wri.tables.fit_jobs import RUNNERS, FitJob, JobRunner, open_runner
from wri.tables.held_out import HeldOutScores, HeldOutWork, SiteData, hold_out_sites
from wri.tables.reading import TableRows
from wri.tables.schema import TableSchema

DEFAULT = ("erm", "wri")
FEWEST_SITES = 3  # one to hold out and two to train on


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """Options of a fit: what is trained, and how one model is kept."""

    algorithms: tuple[str, ...] = DEFAULT
    choose: Rule = DEFAULT_RULE
    fast: bool = False  # no site is held out
    hidden: tuple[int, ...] | None = None
    steps: int | None = None
    penalty_weight: float | None = None  # chosen by sites left out when None
    seed: int = 0
    device: str = "auto"
    backend: str = "local"  # where fits run: "local" or "ray"

    def check(self) -> None:
        """Refuse unknown options."""
        for name in self.algorithms:
            check_option("--algorithms", name, tuple(ALGORITHMS))
        if not self.algorithms or len({*self.algorithms}) < len(self.algorithms):
            raise InputError("--algorithms must name at least one algorithm, and none twice")
        check_option("--choose", self.choose, RULES)
        check_option("--backend", self.backend, tuple(RUNNERS))

    def make_model(self, algorithm: str, classes: bool) -> Any:
        """Make an unfitted estimator."""
        entry = ALGORITHMS[algorithm]
        kind = ESTIMATORS[f"{entry.estimator}{'Classifier' if classes else 'Regressor'}"]
        weight: PenaltyWeight = "auto" if self.penalty_weight is None else self.penalty_weight
        given: dict[str, Any] = {
            "penalty_weight": weight if has_penalty_weight(entry.objective) else None,
            "choose": self.choose,
            "random_state": self.seed,
            "n_jobs": RUNNERS[self.backend].threads_per_job,
        }
        if entry.boosted:
            rounds = {} if self.steps is None else {"rounds": self.steps}
            return kind(**given, **rounds)
        return kind(**given, hidden=self.hidden, steps=self.steps, device=self.device)

    def cost(self, algorithm: str, sites: int) -> int:
        """Estimate the work: runs, those with a penalty counted twice."""
        if not has_penalty_weight(ALGORITHMS[algorithm].objective):
            return 1
        if self.penalty_weight is not None:
            return 2
        return 2 * (len(LADDER) * sites + 1) if sites >= FEWEST_SITES else 2


@dataclass(frozen=True, eq=False, kw_only=True)
class TableFit:
    """Models of all algorithms on all rows, the kept one, and scores at sites held out."""

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
        """The kept model."""
        return self.models[self.kept.algorithm]

    @property
    def estimator(self) -> Any:
        """The kept model without its preprocessing."""
        return last_step(self.model)

    def prepared(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return all rows as the models see them, and the names of the columns."""
        return prepared_columns(self.model, self.data.X)


def last_step(model: Any) -> Any:
    """Return the estimator at the end of a pipeline, or the model itself."""
    return model.steps[-1][1] if isinstance(model, Pipeline) else model


def prepared_columns(model: Any, X: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return preprocessed rows `[n, D]` and the names of their columns."""
    if not isinstance(model, Pipeline):
        return np.asarray(X), tuple(f"feature {k}" for k in range(np.shape(X)[1]))
    head = Pipeline(model.steps[:-1])
    encoded = [str(name) for name in head.get_feature_names_out()]
    return np.asarray(head.transform(X)), readable_names(encoded, list(map(str, X.columns)))


def fit_table(
    rows: TableRows,
    options: FitOptions,
    *,
    schema: TableSchema | None = None,
    progress: Progress = silent,
) -> TableFit:
    """Fit models to raw rows and measure how they hold at sites held out.

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
    """Find the schema of the columns; raise an error if the user must decide first."""
    with warnings.catch_warnings():  # `TableFit.warnings` has its notes
        warnings.simplefilter("ignore")
        schema = TableSchema.infer(rows.frame, kinds=kinds)
    schema.check()
    aside = tuple(Column(name, "left out") for name in rows.left_out)  # allowed in new tables
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
    """Fit models to rows of `SiteData`, which are numbers if there is no schema.

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
    with open_runner(options.backend) as runner:
        if outer:
            report = lambda done, _: progress(done, total)  # noqa: E731
            held = _hold_out(data, environments, options, classes, schema, inner, report, runner)
        models, said = _fit_on_all(
            data,
            options,
            classes,
            schema,
            last,
            lambda done: progress(before + done, total),
            runner,
        )
    if held is None:
        ends = {name: last_step(model) for name, model in models.items()}
        kept = keep_without_comparison(options.algorithms, sites, ends)
    else:
        kept = choose_algorithm(held, options.choose)
    notes = () if schema is None else schema.notes
    return TableFit(
        data=data,
        environments=environments,
        classes=classes,
        options=options,
        schema=schema,
        held_out=held,
        models=models,
        kept=kept,
        warnings=tuple(dict.fromkeys([*notes, *said, *kept.warnings])),
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
    runner: JobRunner,
) -> HeldOutScores:
    work = HeldOutWork(
        make_model=partial(options.make_model, classes=classes),
        make_preprocessing=None if schema is None else partial(_make_pipeline_head, schema),
        classes=classes,
        seed=options.seed,
    )
    return hold_out_sites(
        data,
        tuple(environments),
        options.algorithms,
        work,
        costs=costs,
        progress=progress,
        runner=runner,
    )


def _make_pipeline_head(schema: TableSchema) -> Pipeline:
    return Pipeline([(type(step).__name__.lower(), step) for step in schema.make_preprocessing()])


def _fit_on_all(
    data: SiteData,
    options: FitOptions,
    classes: bool,
    schema: TableSchema | None,
    costs: Mapping[str, int],
    advance: Callable[[int], None],
    runner: JobRunner,
) -> tuple[dict[str, Any], Sequence[str]]:
    """Fit models on all rows; return them with their warnings."""
    found: dict[str, tuple[Any, list[str]]] = {}
    done = 0
    work = partial(_fit_whole, options=options, classes=classes, schema=schema)
    for job, result in runner.run(work, data, [FitJob(name) for name in options.algorithms]):
        found[job.algorithm] = result
        done += costs[job.algorithm]
        advance(done)
    said = [text for name in options.algorithms for text in found[name][1]]
    return {name: found[name][0] for name in options.algorithms}, list(dict.fromkeys(said))


def _fit_whole(
    data: SiteData,
    job: FitJob,
    *,
    options: FitOptions,
    classes: bool,
    schema: TableSchema | None,
) -> tuple[Any, list[str]]:
    """Fit one algorithm on all rows; return the model and its warnings."""
    estimator = options.make_model(job.algorithm, classes)
    steps = [] if schema is None else schema.make_preprocessing()
    model = make_pipeline(*steps, estimator) if steps else estimator
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(data.X, data.y, groups=data.groups)
    return model, [str(each.message) for each in caught if issubclass(each.category, UserWarning)]

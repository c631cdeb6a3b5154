"""Fit of models to raw rows, with each site held out in turn.

rows ─► schema ─► columns that change ─► each site held out: models on the others, in every future
     ─► verdict ─► the kept model, and ERM beside it, on all rows
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.pipeline import Pipeline

from wri.diagnosis import ChangingFeatures
from wri.errors import InputError
from wri.estimators.columns import Column
from wri.estimators.pipeline import make_pipeline
from wri.progress import Progress, silent
from wri.tables.candidates import WITHOUT, FitCandidate, FitOptions
from wri.tables.column_names import owners_of, readable_names
from wri.tables.diagnosing import NamedColumns, compare_slopes
from wri.tables.fit_jobs import FitJob, JobRunner, open_runner
from wri.tables.held_out import (
    HeldOutScores,
    HeldOutWork,
    SiteData,
    hold_out_sites,
)
from wri.tables.reading import TableRows
from wri.tables.schema import TableSchema
from wri.tables.verdict import (
    ColumnChange,
    SiteWord,
    Verdict,
    beside,
    choose_candidate,
    decide,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST_SITES = 3  # one to hold out and two to train on


@dataclass(frozen=True, eq=False, kw_only=True)
class TableFit:
    """The verdict, the kept model on all rows, and scores at sites held out."""

    data: SiteData
    environments: Mapping[str, int]  # rows by name
    classes: bool
    options: FitOptions
    schema: TableSchema | None  # None where rows are features of pictures
    slopes: ChangingFeatures | None  # None where they cannot be compared
    held_out: HeldOutScores | None  # None with two sites, or where it was skipped
    models: Mapping[str, Any]  # the kept one and ERM by name, with their preprocessing
    kept: FitCandidate
    verdict: Verdict
    warnings: tuple[str, ...]
    seconds: float

    @property
    def model(self) -> Any:
        """The kept model."""
        return self.models[self.kept.name]

    @property
    def estimator(self) -> Any:
        """The kept model without its preprocessing."""
        return last_step(self.model)

    @property
    def target(self) -> str:
        """Name of the target."""
        return "class" if self.schema is None else str(self.schema.target)

    def plot_insurance(self, ax: "Axes | None" = None) -> "Axes":
        """Draw each model's loss at sites like these against its loss if flagged columns broke.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None: new ones.

        Returns
        -------
        ax : matplotlib Axes
        """
        from wri.tables.fit_plots import draw_insurance  # loads Matplotlib

        if self.held_out is None or not self.held_out.columns:
            raise InputError("no column was flagged at sites held out, so there is no curve")
        return draw_insurance(self.held_out, self.kept.name, self.verdict.word, ax)


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
    word = SiteWord.of(None if schema is None else schema.environment)
    slopes, changes = find_changes(data, schema, classes)
    reduced = _without_flagged(schema, changes, options)
    held = None
    with open_runner(options.backend) as runner:
        if sites >= FEWEST_SITES and not options.fast:
            work = HeldOutWork(
                candidates=tuple(options.candidates(len(data.y), sites)),
                make_model=partial(options.make_model, classes=classes, fold=True),
                make_preprocessing=None if schema is None else partial(_make_head, schema),
                classes=classes,
                seed=options.seed,
            )
            names = tuple(environments)
            report = lambda done, _: progress(done, sites + 1)  # noqa: E731
            held = hold_out_sites(data, names, work, progress=report, runner=runner)
        kept = options.kept_by_name() or keep_candidate(held, options)
        erm = beside(kept, options.candidates())
        fits = _Fits(options, classes, schema, reduced)
        models, said = fits.run(data, [kept] if erm is None else [kept, erm], runner)
    verdict = decide(
        held,
        options,
        kept,
        changes=changes,
        slopes=slopes,
        target="class" if schema is None else str(schema.target),
        word=word,
        sites=sites,
    )
    return TableFit(
        data=data,
        environments=environments,
        classes=classes,
        options=options,
        schema=schema,
        slopes=slopes,
        held_out=held,
        models=models,
        kept=kept,
        verdict=verdict,
        warnings=tuple(dict.fromkeys([*(() if schema is None else schema.notes), *said])),
        seconds=perf_counter() - start,
    )


def find_changes(
    data: SiteData, schema: TableSchema | None, classes: bool
) -> tuple[ChangingFeatures | None, list[ColumnChange]]:
    """Compare the columns' slopes between all sites; features of pictures are not compared."""
    if schema is None:
        return None, []
    head = _make_head(schema)
    x = np.asarray(head.fit_transform(data.X))
    return compare_slopes(name_columns(head, x, data), classes)


def name_columns(head: Pipeline, x: np.ndarray, data: SiteData, **more: Any) -> NamedColumns:
    """Name encoded columns by the raw ones that they come from."""
    encoded, raw = [str(name) for name in head.get_feature_names_out()], list(map(str, data.X))
    return NamedColumns(
        x=x,
        names=readable_names(encoded, raw),
        owners=owners_of(encoded, raw),
        y=data.y,
        groups=data.groups,
        blocks=data.blocks,
        **more,
    )


def _without_flagged(
    schema: TableSchema | None, changes: Sequence[ColumnChange], options: FitOptions
) -> TableSchema | None:
    """Return the schema without the flagged columns; refuse to keep a model that has none left."""
    flagged = {change.column for change in changes}
    if options.keep == WITHOUT and not flagged:
        raise InputError("--keep without: no column is flagged; use --keep erm")
    if schema is None or options.keep != WITHOUT:
        return schema
    columns = tuple(replace(c, kind="left out") if c.name in flagged else c for c in schema.columns)
    reduced = replace(schema, columns=columns)
    if not reduced.features:
        raise InputError("--keep without: every column is flagged, so none would be left")
    return reduced


def keep_candidate(held: HeldOutScores | None, options: FitOptions) -> FitCandidate:
    """Return the candidate that the rule keeps; the preset's λ where no site was held out."""
    if held is not None:
        return choose_candidate(held, options)
    asked = [each for each in options.candidates() if each.is_asked]
    default = options.default_weight()
    return next((each for each in asked if each.penalty_weight == default), asked[0])


def _make_head(schema: TableSchema) -> Pipeline:
    return Pipeline([(type(step).__name__.lower(), step) for step in schema.make_preprocessing()])


@dataclass(frozen=True)
class _Fits:
    """Fits on all rows."""

    options: FitOptions
    classes: bool
    schema: TableSchema | None
    reduced: TableSchema | None  # without the flagged columns, if such a model is kept

    def run(
        self, data: SiteData, candidates: Sequence[FitCandidate], runner: JobRunner
    ) -> tuple[dict[str, Any], list[str]]:
        """Return the models by name, and their warnings."""
        work = partial(self._fit, by_name={each.name: each for each in candidates})
        jobs = [FitJob(each.name) for each in candidates]
        found = {job.algorithm: result for job, result in runner.run(work, data, jobs)}
        said = [text for each in candidates for text in found[each.name][1]]
        models = {each.name: found[each.name][0] for each in candidates}
        return models, list(dict.fromkeys(said))

    def _fit(
        self, data: SiteData, job: FitJob, *, by_name: Mapping[str, FitCandidate]
    ) -> tuple[Any, list[str]]:
        """Fit one model on all rows; return it with its warnings."""
        estimator = self.options.make_model(by_name[job.algorithm], self.classes)
        schema = self.reduced if job.algorithm == WITHOUT else self.schema
        steps = [] if schema is None else schema.make_preprocessing()
        model = make_pipeline(*steps, estimator) if steps else estimator
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(data.X, data.y, groups=data.groups)
        said = [str(each.message) for each in caught if issubclass(each.category, UserWarning)]
        return model, said

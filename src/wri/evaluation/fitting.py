"""Fit of models to raw rows, with each site held out in turn.

rows ─► schema ─► columns that change ─► each site held out: models on the others, in every future
     ─► verdict ─► the kept model, and ERM beside it, on all rows
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import cpu_count
from sklearn.pipeline import Pipeline

from wri.datasets.columns import Column
from wri.datasets.schema import TableSchema, owners_of, readable_names
from wri.datasets.table_rows import TableRows
from wri.diagnosis import ChangingFeatures
from wri.errors import InputError
from wri.estimators.pipeline import last_step, make_pipeline
from wri.evaluation.candidates import WITHOUT, FitCandidate, FitOptions
from wri.evaluation.changes import ColumnChange, SiteWord, compare_slopes
from wri.evaluation.held_out import HeldOutScores, HeldOutWork, hold_out_sites
from wri.evaluation.verdict import Verdict, choose_candidate, decide
from wri.jobs import LocalRunner, Runner, open_runner, run_calls
from wri.progress import Progress, silent
from wri.threads import one_algebra_thread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST_SITES = 3  # one to hold out and two to train on
LARGE_TABLE = 2_000_000  # cells from which sites are held out in several threads


@dataclass(frozen=True, eq=False, kw_only=True)
class TableFit:
    """The verdict, the kept model on all rows, and scores at sites held out."""

    rows: TableRows
    options: FitOptions
    schema: TableSchema | None  # None where rows are features of pictures
    slopes: ChangingFeatures | None  # None where they cannot be compared
    changes: Sequence[ColumnChange]  # of flagged columns
    held_out: HeldOutScores | None  # None with two sites, or where it was skipped
    models: Mapping[str, Any]  # the kept one and ERM by name, with their preprocessing
    kept: FitCandidate
    warnings: tuple[str, ...]
    seconds: float

    @cached_property
    def verdict(self) -> Verdict:
        """Whether it will hold at a new site."""
        return decide(self)

    @property
    def word(self) -> SiteWord:
        """The user's word for a site."""
        return SiteWord.of(self.rows.environment)

    @property
    def model(self) -> Any:
        """The kept model."""
        return self.models[self.kept.name]

    @property
    def estimator(self) -> Any:
        """The kept model without its preprocessing."""
        return last_step(self.model)

    @property
    def classes(self) -> bool:
        """Whether targets are classes."""
        return self.rows.classes

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
        from wri.evaluation.plots import draw_insurance  # loads Matplotlib

        if self.held_out is None or not self.held_out.columns:
            raise InputError("no column was flagged at sites held out, so there is no curve")
        return draw_insurance(self.held_out, self.kept.name, self.word, ax)


def encode(rows: TableRows, steps: Pipeline | None) -> TableRows:
    """Return rows with encoded columns, named as a reader knows them, by fitted preprocessing."""
    import pandas as pd

    if steps is None:
        x = np.asarray(rows.X)
        names = owners = tuple(f"feature {k}" for k in range(x.shape[1]))
    else:
        x, raw = np.asarray(steps.transform(rows.X)), [str(name) for name in rows.X]
        encoded = [str(name) for name in steps.get_feature_names_out()]
        names, owners = readable_names(encoded, raw), owners_of(encoded, raw)
    return replace(rows, X=pd.DataFrame(x, columns=list(names), copy=False), owners=owners)


def preprocessing_of(model: Any) -> Pipeline | None:
    """Return the fitted preprocessing of a model; None if it has none."""
    return Pipeline(model.steps[:-1]) if isinstance(model, Pipeline) else None


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
        From `read_rows`, or features of pictures.
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
    if schema is None and hasattr(rows.X, "columns"):
        schema = find_schema(rows)
    start, sites = perf_counter(), len(rows.environments)
    slopes, changes = find_changes(rows, schema)
    reduced = _without_flagged(schema, changes, options)
    held = None
    # products are small: a second thread of linear algebra waits more than it works
    with open_runner(options.backend) as runner, one_algebra_thread():
        if sites >= FEWEST_SITES and not options.fast:
            candidates = tuple(options.candidates(len(rows.y), sites))
            work = HeldOutWork(
                candidates=candidates,
                judged=frozenset(each.name for each in options.shown(candidates)),
                make_model=partial(options.make_model, classes=rows.classes, fold=True),
                make_preprocessing=None if schema is None else partial(make_head, schema),
                seed=options.seed,
            )
            report = lambda done, _: progress(done, sites + 1)  # noqa: E731
            where = _side_by_side(rows, runner)
            held = hold_out_sites(rows, work, progress=report, runner=where)
        kept = options.kept_by_name() or choose_candidate(held, options)
        calls = [(c, reduced if c.name == WITHOUT else schema) for c in options.compared(kept)]
        fit_one = partial(_fit_one, options=options)
        fits = run_calls(runner, fit_one, rows, calls, lambda call: f"the fit of {call[0].name}")
        found = {call[0].name: result for call, result in fits}
    names = [call[0].name for call in calls]  # the first to finish may be another
    notes = [] if schema is None else list(schema.notes)
    said = [text for name in names for text in found[name][1]]
    return TableFit(
        rows=rows,
        options=options,
        schema=schema,
        slopes=slopes,
        changes=changes,
        held_out=held,
        models={name: found[name][0] for name in names},
        kept=kept,
        warnings=tuple(dict.fromkeys([*notes, *said])),
        seconds=perf_counter() - start,
    )


def find_schema(rows: TableRows, kinds: Mapping[str, str] | None = None) -> TableSchema:
    """Find the schema of the columns; raise an error if the user must decide first."""
    with warnings.catch_warnings():  # `TableFit.warnings` has its notes
        warnings.simplefilter("ignore")
        schema = TableSchema.infer(rows.X, kinds=kinds)
    schema.check()
    aside = tuple(Column(name, "left out") for name in rows.left_out)  # allowed in new tables
    columns = (*schema.columns, *aside)
    return replace(schema, columns=columns, target=rows.target, environment=rows.environment)


def _side_by_side(rows: TableRows, runner: Runner) -> Runner:
    """Return a runner with a thread per core for large tables on this machine.

    Operations on many rows release the interpreter's lock; on few rows threads only wait for it.
    """
    is_local = isinstance(runner, LocalRunner)
    return LocalRunner(cpu_count()) if is_local and np.size(rows.X) >= LARGE_TABLE else runner


def find_changes(
    rows: TableRows, schema: TableSchema | None
) -> tuple[ChangingFeatures | None, list[ColumnChange]]:
    """Compare the columns' slopes between all sites; features of pictures are not compared."""
    if schema is None:
        return None, []
    return compare_slopes(encode(rows, make_head(schema).fit(rows.X)))


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


def make_head(schema: TableSchema) -> Pipeline:
    """Make the unfitted preprocessing of a schema."""
    return Pipeline([(type(step).__name__.lower(), step) for step in schema.make_preprocessing()])


def _fit_one(
    rows: TableRows, call: tuple[FitCandidate, TableSchema | None], *, options: FitOptions
) -> tuple[Any, list[str]]:
    """Fit one model on all rows; return it with its warnings."""
    candidate, schema = call
    model = options.make_model(candidate, rows.classes)
    if schema is not None:
        model = make_pipeline(*schema.make_preprocessing(), model)
    return collect_warnings(lambda: model.fit(rows.X, rows.y, groups=rows.groups))


def collect_warnings(fit: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return what a fit returns, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fit()
    return model, [str(each.message) for each in caught if issubclass(each.category, UserWarning)]

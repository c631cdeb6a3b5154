"""Fits to folders: Parquet files beyond memory, and pictures.

    sample ─► preprocessing, WRI's weights, thresholds, a first solution
    all rows ─► units, then passes that correct the solution to that of all rows

For files, no site is left out: λ is given, or the preset's. Pictures become features of a fixed
network, which are fitted like a table.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from wri.datasets import ImageFolder
from wri.datasets.parquet_folders import ChunkReader, Folder
from wri.datasets.schema import TableSchema
from wri.datasets.table_rows import TableRows
from wri.errors import InputError
from wri.estimators.network import Estimator
from wri.estimators.pictures import PictureClassifier
from wri.estimators.pipeline import make_pipeline
from wri.estimators.problem import Problem
from wri.evaluation.candidates import FitOptions
from wri.evaluation.fitting import (
    TableFit,
    collect_warnings,
    find_changes,
    fit_table,
    make_head,
)
from wri.evaluation.verdict import choose_candidate
from wri.features.backbones import as_backbone
from wri.features.extraction import extract
from wri.progress import Progress, silent
from wri.rows import ROUNDING, Scaling
from wri.stacked.linear import MemoryTable, SumChunks
from wri.training import ModelSpec, Record, Units
from wri.training.solver import RowsAsTable, SampleRun, solve_in_chunks

Arrays = tuple[np.ndarray, ...]
BACKBONE = "efficientnet-lite0"


def check_folder_options(options: FitOptions) -> None:
    """Refuse what cannot be summed in chunks, before the first pass."""
    kept = options.kept_by_name() or choose_candidate(None, options)
    model = options.make_model(kept, classes=True)
    if not (isinstance(model, Estimator) and model._spec({}).is_solved):
        raise InputError(
            f"a folder with --fast is summed in chunks, which {kept.name} with these options does "
            "not allow; name erm, irm, vrex or wri, and leave out --hidden and --steps"
        )


def _sum_moments(path: Path, *, reader: ChunkReader, inputs: Scaling, target: Scaling) -> Arrays:
    """Return sums over a file of the rows and of their squares, about a centre."""
    parts: list[Arrays] = []
    for x, y, _ in reader.read(path):
        y = y if reader.classes is None else np.zeros(len(y))
        z = np.column_stack([inputs.apply(x), target.apply(y)])
        parts.append((np.array(len(z)), z.sum(0), np.square(z).sum(0)))
    return _add(parts)


def _sum_tables(
    path: Path,
    *,
    reader: ChunkReader,
    units: Units,
    shares: np.ndarray,  # [E], of one row
    as_table: RowsAsTable,
    work: Callable[[MemoryTable], Arrays],
) -> Arrays:
    """Return the sums of `work` over a file, each chunk a table of the solver."""
    parts = []
    for x, y, counts in reader.read(path):
        y = units.target.apply(y) if reader.classes is None else y
        weights = np.repeat(shares, counts)
        parts.append(work(as_table(units.inputs.apply(x), y, counts.tolist(), weights)))
    return _add(parts)


def _add(parts: list[Arrays]) -> Arrays:
    return tuple(np.sum(same, axis=0) for same in zip(*parts, strict=True))


@dataclass(frozen=True, eq=False, kw_only=True)
class FolderProblem(Problem):
    """The problem of a sample whose final predictor is solved on all rows."""

    keeps_path: ClassVar[bool] = False  # every λ takes passes over all rows
    passes: "FolderFit"
    name: str  # of the estimator

    @property
    def can_leave_one_out(self) -> bool:
        return False

    def complete(self, spec: ModelSpec) -> ModelSpec:
        width, sizes = self.bank.features.shape[1], self.passes.sizes.values()
        return spec.complete(width, float(sum(sizes)), max(sizes))

    def _make_run(self, spec: ModelSpec, rows: Any, **settings: Any) -> SampleRun:
        settings["units_of_all"] = self.passes.units
        return SampleRun(spec, self.bank, rows, seed=self.seed, **settings)

    def train(self, runs: Any, every: int, progress: Progress) -> list[Record]:
        """Solve runs on all rows; those without the held-out rows on the sample."""
        whole = [len(run.learned) == len(self.bank.targets) for run in runs]
        if not all(whole):
            return super().train(runs, every, progress)
        open_chunks = partial(self.passes.open_chunks, self.name)
        return [solve_in_chunks(run, open_chunks) for run in runs]


class FolderFit:
    """Passes over the chunks of a folder, for the algorithms of a fit."""

    def __init__(
        self, folder: Folder, rows: TableRows, schema: TableSchema, progress: Progress
    ) -> None:
        self._folder, self._rows, self._progress = folder, rows, progress
        self.sizes = rows.environments
        self._numbers = count(2)  # of the passes; the first has made the sample
        self.head = make_head(schema)
        try:
            self.x = np.asarray(self.head.fit_transform(rows.X))
        except InputError as error:
            raise InputError(f"sampled rows of {folder.path}: {error}") from error
        classes = None
        if rows.classes:
            classes = {str(each): number for number, each in enumerate(np.unique(rows.y))}
        self._reader = ChunkReader(
            target=rows.target,
            environment=str(rows.environment),
            head=self.head,
            features=schema.features,
            sites={name: number for number, name in enumerate(self.sizes)},
            classes=classes,
        )
        self.units = self._find_units()

    def _find_units(self) -> Units:
        """Return means and standard deviations of all rows."""
        numbers = self._reader.classes is None
        inputs = Scaling.of(self.x)
        target = Scaling.of(self._rows.y) if numbers else Units.plain(1).target
        n, total, squares = self._sum(
            "units", partial(_sum_moments, reader=self._reader, inputs=inputs, target=target)
        )
        centre, spread = np.append(inputs.mean, target.mean), np.append(inputs.scale, target.scale)
        middle = total / n
        scale = spread * np.sqrt(np.maximum(squares / n - np.square(middle), 0))
        mean = centre + spread * middle
        scale = np.where(scale <= ROUNDING * np.abs(mean), 1.0, scale)
        target = Scaling(mean[-1], scale[-1]) if numbers else target
        return Units(Scaling(mean[:-1], scale[:-1]), target)

    def _sum(self, what: str, sum_file: Callable[[Path], Arrays]) -> Arrays:
        name = f"pass {next(self._numbers)}, {what}"
        rows = sum(self.sizes.values())
        found = dict(self._folder.read(name, rows, sum_file, self._progress))
        return _add([found[path] for path in self._folder.files])  # rounded alike in any order

    def open_chunks(self, name: str, as_table: RowsAsTable) -> SumChunks:
        """Return what sums over all rows for an estimator, each chunk a table of the solver."""
        chunks = partial(
            _sum_tables,
            reader=self._reader,
            units=self.units,
            shares=1 / np.array([*self.sizes.values()]),
            as_table=as_table,
        )
        return lambda work: self._sum(name, partial(chunks, work=work))

    def fit(self, model: Estimator) -> Any:
        """Fit an estimator; return it with its preprocessing."""
        sample = model._read_problem(self.x, self._rows.y, self._rows.groups)
        shared: dict[str, Any] = {"bank": sample.bank, "rows": sample.rows, "seed": sample.seed}
        model._fit(FolderProblem(**shared, passes=self, name=type(model).__name__))
        return make_pipeline(*(step for _, step in self.head.steps), model)


def fit_folder(
    rows: TableRows,
    options: FitOptions,
    *,
    folder: Folder,
    schema: TableSchema,
    progress: Progress = silent,
) -> TableFit:
    """Fit models to all rows of a folder, of which `rows` are a sample (`scan_folder`)."""
    start, total = perf_counter(), sum(rows.environments.values())
    fitting, found = FolderFit(folder, rows, schema, progress), {}
    kept = options.kept_by_name() or choose_candidate(None, options)
    for each in options.compared(kept):
        model = options.make_model(each, rows.classes, fold=True)
        found[each.name] = collect_warnings(partial(fitting.fit, model))
    said = [text for _, own in found.values() for text in own]
    slopes, changes = find_changes(rows, schema)
    sampled = (
        f"The model was solved on all {total:,} rows, in chunks. Preprocessing, weights, "
        f"thresholds and the report's tables use {len(rows.y):,} sampled rows. Run without --fast "
        "on some of the files to measure how the model does at a new site."
    )
    return TableFit(
        rows=rows,
        options=options,
        schema=schema,
        slopes=slopes,
        changes=changes,
        held_out=None,
        models={name: model for name, (model, _) in found.items()},
        kept=kept,
        warnings=tuple(dict.fromkeys([*said, sampled])),
        seconds=perf_counter() - start,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class PictureFit:
    """Fit of pictures with the classifier to be saved."""

    fit: TableFit
    model: PictureClassifier
    folder: ImageFolder
    kept: np.ndarray  # [n], numbers of the pictures that could be read


def fit_pictures(
    root: Path,
    options: FitOptions,
    *,
    progress: Progress = silent,
    status: Callable[[str], None] = lambda text: None,
) -> PictureFit:
    """Fit a classifier to a folder ROOT/SITE/CLASS/*.jpg or *.png, each site held out in turn.

    `status` is called with what is being done.
    """
    options.check()
    folder, backbone = ImageFolder(root), as_backbone(BACKBONE)
    found = extract(folder, backbone, None, progress=progress)
    groups, y = folder.groups[found.kept], folder.y[found.kept]
    sizes = {name: int((groups == name).sum()) for name in folder.count()}
    status("fitting")
    rows = TableRows(
        X=found.x, y=y, groups=groups, environment="folder", task="classes", sizes=sizes
    )
    fit = fit_table(rows, options, progress=progress)
    broken = dict(found.broken)
    said = [f"{path} could not be read and was left out: {why}" for path, why in broken.items()]
    fit = replace(fit, warnings=(*fit.warnings, *said[:10]))
    model = PictureClassifier(options.make_model(fit.kept, True), backbone=backbone)
    model.backbone_ = {"name": found.backbone, "digest": found.digest}
    model.broken_, model.estimator_ = broken, fit.model
    model.estimator_.backbone_ = model.backbone_
    model.classes_ = fit.model.classes_
    return PictureFit(fit=fit, model=model, folder=folder, kept=np.asarray(found.kept))

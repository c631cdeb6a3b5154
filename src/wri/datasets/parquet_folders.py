"""Folders of Parquet files, read in chunks: a sample of rows, and prepared rows for sums.

    first pass:  files ─► rows by site, and the rows with the smallest hashes of each site
    other passes: files ─► chunks ─► preprocessing ─► x, y, number of the site

A row is in the sample by its contents, so the sample depends neither on the order of rows nor on
the division into files. A pass is one job per file, here or in Ray's workers.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import call
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

from wri.datasets.table_files import check_memory, count_parquet, open_table
from wri.datasets.table_rows import SourceFile, TableRows, check_columns, digest_file, separate
from wri.errors import InputError, shorten
from wri.jobs import Runner, run_calls
from wri.progress import Progress, silent

SAMPLE = 100_000
"""Most rows of the sample; every site has the same share, or all of its rows."""
SAMPLE_CELLS = 5_000_000
FEWEST = 50  # rows of a site in the sample


@dataclass(frozen=True, eq=False)
class Folder:
    """Files of a folder and where they are read."""

    path: Path
    files: tuple[Path, ...]
    runner: Runner
    print_note: Callable[[str], None]

    def read(
        self, what: str, rows: int, work: Callable[[Path], Any], progress: Progress
    ) -> Iterator[tuple[Path, Any]]:
        """Make one pass: yield files with what they give, as they finish."""
        start = perf_counter()
        results = run_calls(self.runner, call, work, self.files, "the pass over {}".format)
        for done, found in enumerate(results, start=1):
            yield found
            progress(done, len(self.files))
        seconds = perf_counter() - start
        self.print_note(f"{what}: {rows:,} rows in {seconds:.1f} s, {rows / seconds:,.0f} rows/s")


def find_files(folder: Path) -> tuple[Path, ...]:
    """Return the Parquet files of a folder that have rows."""
    found = sorted(path for path in folder.glob("*.parquet") if path.name[0] not in "._")
    if not found:
        raise InputError(f"{shorten(folder)} has no .parquet files; name a folder that has some")
    files = tuple(path for path in found if open_table(path) and count_parquet(path)[0])
    if not files:
        raise InputError(f"the files of {shorten(folder)} have columns but no rows; add rows first")
    return files


def files_in_memory(folder: Path, gigabytes: float) -> tuple[Path, ...]:
    """Return the files of a folder whose rows fit into memory."""
    files = find_files(folder)
    remedy = "--fast sums the folder in chunks, with no site held out"
    check_memory(files, gigabytes, remedy=remedy)
    return files


def scan_folder(
    folder: Folder,
    *,
    target: str,
    environment: str,
    task: str | None = None,
    leave_out: Sequence[str] = (),
    progress: Progress = silent,
) -> TableRows:
    """Read a sample of a folder's rows, and count the rows of each site."""
    if target == environment:
        raise InputError(f"target and site must be different columns, not {target!r} twice")
    tables = [open_table(path) for path in folder.files]
    for table in tables:
        table.check(target=target, site=environment)
    there = check_columns({table.path: table.names for table in tables}, leave_out)
    wanted = [name for name in there if name not in leave_out]
    scan_file = partial(_scan, environment=environment, wanted=wanted)
    rows = sum(int(count_parquet(path)[0]) for path in folder.files)
    counts, frame, files = Counter[str](), pd.DataFrame(), {}
    passed = folder.read("pass 1, counts and sample", rows, scan_file, progress)
    for path, (sizes, sample, digest) in passed:
        counts += sizes
        frame = _keep_smallest(environment, len(counts), frame, sample)
        files[path] = SourceFile(str(path), sizes.total(), digest, "")
    frame.index = pd.RangeIndex(1, len(frame) + 1)
    found = separate(str(folder.path), frame, target, environment, None, task)
    return replace(
        found,
        files=tuple(files[path] for path in folder.files),
        left_out=tuple(name for name in there if name in {*leave_out, environment}),
        sizes={name: counts[name] for name in found.environments},
    )


def _scan(
    path: Path, *, environment: str, wanted: Sequence[str]
) -> tuple[Counter[str], pd.DataFrame, str]:
    """Return the rows of each site of a file, a sample whose index is the hash, and the SHA-256."""
    counts, sample = Counter[str](), pd.DataFrame()
    for frame, _ in open_table(path).chunks(wanted):
        codes, names = _label_codes(path, frame[environment])
        counts.update(dict(zip(names, np.bincount(codes).tolist(), strict=True)))
        frame.index = pd.Index(pd.util.hash_pandas_object(frame, index=False).to_numpy())
        sample = _keep_smallest(environment, len(counts), sample, frame)
    return counts, sample, digest_file(path)


def _keep_smallest(environment: str, sites: int, *samples: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows with the smallest hashes of each site."""
    joined = pd.concat([sample for sample in samples if len(sample)]).sort_index(kind="stable")
    most = max(FEWEST, min(SAMPLE, SAMPLE_CELLS // joined.shape[1]) // sites)
    return joined.groupby(environment, sort=False, observed=True).head(most)


def _label_codes(path: Path, cells: pd.Series) -> tuple[np.ndarray, list[str]]:
    """Return the number of each cell's label, and the labels as texts."""
    codes, found = pd.factorize(cells)
    lost = np.flatnonzero(codes < 0)
    if len(lost):
        raise InputError(
            f"{path}: column {cells.name!r}, row {cells.index[lost[0]]} is missing; fill in or "
            "drop such rows"
        )
    return codes, [str(each) for each in found]


@dataclass(frozen=True, eq=False, kw_only=True)
class ChunkReader:
    """Preprocessing of chunks; it is sent to the workers."""

    target: str
    environment: str
    head: Pipeline  # fitted to the sample
    features: tuple[str, ...]
    sites: Mapping[str, int]  # numbers by name
    classes: Mapping[str, int] | None  # None where numbers are predicted

    def read(self, path: Path) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield x, y and the rows of each site for each chunk of a file, sorted by site."""
        wanted = {*self.features, self.target, self.environment}
        for frame, _ in open_table(path).chunks(wanted):
            codes, names = _label_codes(path, frame.pop(self.environment))
            site = np.array([self.sites[name] for name in names])[codes]
            y = self._targets(path, frame.pop(self.target))
            order = np.argsort(site, kind="stable")
            try:
                x = np.asarray(self.head.transform(frame))
            except InputError as error:
                raise InputError(f"{path}: {error}") from error
            yield x[order], y[order], np.bincount(site, minlength=len(self.sites))

    def _targets(self, path: Path, cells: pd.Series) -> np.ndarray:
        if self.classes is None:
            numbers = pd.to_numeric(cells, errors="coerce").to_numpy(np.float64)
            lost = np.flatnonzero(~np.isfinite(numbers))
            if len(lost):
                raise InputError(
                    f"{path}: column {cells.name!r}, row {cells.index[lost[0]]} is no finite "
                    "number; fill in or drop such rows"
                )
            return numbers
        codes, names = _label_codes(path, cells)
        unknown = [name for name in names if name not in self.classes]
        if unknown:
            raise InputError(
                f"{path}: class {shorten(unknown[0])!r} of column {cells.name!r} is so rare that "
                "the sample has no row of it; drop its rows, or merge it with another class"
            )
        return np.array([self.classes[name] for name in names])[codes]

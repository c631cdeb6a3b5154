"""Features of pictures on disk, by a backbone.

    files ─► those whose features are kept are looked up
          ─► the others are read, chunk by chunk, by worker processes, and kept when a chunk is done

A picture's features depend on its file and the backbone only: every picture goes through the
network alone and in one thread. So they are the same to the last bit with one worker and with many.
Files that are no pictures are named in a warning and left out.
"""

import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import joblib
import numpy as np

from wri.cache import cache_folder
from wri.datasets import Environment, ImageFolder
from wri.errors import InputError, shorten
from wri.features.backbones import Backbone, as_backbone
from wri.features.picture_files import UnreadableError
from wri.features.picture_store import FeatureStore
from wri.progress import Progress, silent
from wri.threads import one_thread

CHUNK = 64  # pictures that are kept at once, and so the most that an interruption costs a worker
MOST_WORKERS = 8  # unless more are asked for: each takes a third of a gigabyte
MOST_NAMED = 5  # broken pictures in a warning
IDLE_SECONDS = 30  # after which a worker ends, also one whose parent was killed

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, eq=False, kw_only=True)
class PictureFeatures:
    """Features of the pictures that could be read.

    Parameters
    ----------
    x
        `[n, width]`, float32.
    kept
        `[n]`, which of the pictures they belong to, by number.
    broken
        Files that could not be read, and why.
    backbone, digest
        What made the features.
    """

    x: np.ndarray
    kept: np.ndarray
    broken: Mapping[Path, str]
    backbone: str
    digest: str


class ExtractedFile(NamedTuple):
    """What a worker made of one file: features under their key, or why there are none."""

    number: int
    key: bytes
    x: np.ndarray | None
    trouble: str


def extract(
    pictures: ImageFolder | Iterable[PathLike],
    backbone: Backbone | str | None = None,
    workers: int | None = None,
    folder: Path | None = None,
    progress: Progress = silent,
) -> PictureFeatures:
    """Features of pictures.

    Parameters
    ----------
    pictures
        A folder of pictures, or paths.
    backbone
        A name for `load_backbone`, or a `Backbone`; EfficientNet-Lite0 when not given.
    workers
        Processes that read and compute; as many as there are cores, at most 8, when not given.
        They are started only where there is something to do for them.
    folder
        Where features are kept; `cache_folder()/pictures` when not given.
    progress
        Called with (done, of) pictures.
    """
    paths = list_paths(pictures)
    backbone = as_backbone(backbone)
    digest = backbone.digest
    if workers is not None and workers < 1:
        raise InputError(f"workers must be 1 or more, not {workers}")
    store = FeatureStore(_store_path(folder, backbone.name, digest))
    table = _Table(paths, progress)
    keys = table.hash_files()
    for key, x in store.read([*keys]):
        for number in keys[key]:
            table.fill(number, x)
    for chunk in _compute(backbone, paths, table.missing(), workers):
        store.write({each.key: each.x for each in chunk if each.x is not None})
        for each in chunk:
            table.take(each)
    return table.finish(backbone.name, digest)


def picture_environments(
    pictures: ImageFolder,
    backbone: Backbone | str | None = None,
    workers: int | None = None,
    folder: Path | None = None,
    progress: Progress = silent,
) -> list[Environment]:
    """The domains of a folder as environments of features; y numbers the folder's classes.

    The parameters are those of `extract`.
    """
    return as_environments(pictures, extract(pictures, backbone, workers, folder, progress))


def as_environments(pictures: ImageFolder, found: PictureFeatures) -> list[Environment]:
    """Features of all of a folder's pictures, by domain."""
    number = {label: n for n, label in enumerate(pictures.classes)}
    y = np.array([number[pictures.pictures[row].label] for row in found.kept])
    domain = pictures.groups[found.kept]
    rows = {name: domain == name for name in pictures.domains}
    return [Environment(name, found.x[own], y[own]) for name, own in rows.items()]


def list_paths(pictures: ImageFolder | Iterable[PathLike]) -> list[Path]:
    """Paths of the pictures, in their order."""
    if isinstance(pictures, ImageFolder):
        return pictures.paths
    if isinstance(pictures, str | os.PathLike):
        raise InputError(
            f"{shorten(pictures)} is one path; give a list of paths, or ImageFolder(root)"
        )
    paths = [Path(path) for path in pictures]
    if not paths:
        raise InputError("there are no pictures; give the path of one at least")
    return paths


class _Table:
    """Features as they come, by the number of the picture."""

    def __init__(self, paths: Sequence[Path], progress: Progress) -> None:
        self._paths, self._progress = paths, progress
        self._x: np.ndarray | None = None  # its width is known with the first features
        self._there = np.zeros(len(paths), bool)
        self._broken: dict[int, str] = {}
        self._done = 0

    def hash_files(self) -> dict[bytes, list[int]]:
        """Numbers of the pictures by the SHA-256 of their files."""
        numbers: dict[bytes, list[int]] = {}
        for number, path in enumerate(self._paths):
            try:
                with path.open("rb") as file:
                    key = hashlib.file_digest(file, "sha256").digest()
            except OSError as error:
                self.take(ExtractedFile(number, b"", None, error.strerror or str(error)))
                continue
            numbers.setdefault(key, []).append(number)
        return numbers

    def missing(self) -> list[int]:
        return [n for n in np.flatnonzero(~self._there).tolist() if n not in self._broken]

    def fill(self, number: int, x: np.ndarray) -> None:
        if self._x is None:
            self._x = np.zeros((len(self._paths), len(x)), np.float32)
        if not np.isfinite(x).all():
            raise InputError(
                f"the features of {self._paths[number]} are not finite; check the backbone's "
                "weights and its preprocessing"
            )
        self._x[number], self._there[number] = x, True
        self._tell()

    def take(self, made: ExtractedFile) -> None:
        if made.x is None:
            self._broken[made.number] = made.trouble
            self._tell()
        else:
            self.fill(made.number, made.x)

    def finish(self, backbone: str, digest: str) -> PictureFeatures:
        broken = {self._paths[number]: self._broken[number] for number in sorted(self._broken)}
        if broken:
            _warn_of(broken, len(self._paths))
        if self._x is None:
            raise InputError("none of the pictures could be read; check their paths and formats")
        kept = np.flatnonzero(self._there)
        x = self._x if len(kept) == len(self._x) else self._x[kept]
        return PictureFeatures(x=x, kept=kept, broken=broken, backbone=backbone, digest=digest)

    def _tell(self) -> None:
        self._done += 1
        self._progress(self._done, len(self._paths))


def _compute(
    backbone: Backbone, paths: Sequence[Path], numbers: Sequence[int], workers: int | None
) -> Iterator[list[ExtractedFile]]:
    """Chunks in any order; in this process where they are few."""
    chunks = [numbers[start : start + CHUNK] for start in range(0, len(numbers), CHUNK)]
    if not chunks:
        return
    backbone = backbone.for_extraction()
    several = min(workers or min(joblib.cpu_count(), MOST_WORKERS), len(chunks))
    if several == 1:
        for chunk in chunks:
            yield _work(backbone, [(number, paths[number]) for number in chunk])
        return
    parallel = joblib.Parallel(  # loky's processes: scripts need no guard of __main__
        several,
        backend="loky",
        return_as="generator_unordered",
        pre_dispatch="2*n_jobs",
        idle_worker_timeout=IDLE_SECONDS,
    )
    yield from parallel(
        joblib.delayed(_work)(backbone, [(number, paths[number]) for number in chunk])
        for chunk in chunks
    )


def _work(backbone: Backbone, files: Sequence[tuple[int, Path]]) -> list[ExtractedFile]:
    """Features of some files, one after the other."""
    made = []
    with one_thread():
        for number, path in files:
            key, x, trouble = b"", None, ""
            try:
                data = path.read_bytes()
                key, x = hashlib.sha256(data).digest(), backbone.features(data)
            except UnreadableError as error:
                trouble = str(error)
            except OSError as error:
                trouble = error.strerror or str(error)
            made.append(ExtractedFile(number, key, x, trouble))
    return made


def _store_path(folder: Path | None, name: str, digest: str) -> Path:
    plain = "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in name)
    folder = cache_folder() / "pictures" if folder is None else folder
    return folder / f"{plain[:40]}-{digest[:32]}.sqlite"


def _warn_of(broken: Mapping[Path, str], of: int) -> None:
    shown = [f"{path} ({shorten(trouble)})" for path, trouble in [*broken.items()][:MOST_NAMED]]
    more = f" and {len(broken) - MOST_NAMED} more" if len(broken) > MOST_NAMED else ""
    warnings.warn(
        f"{len(broken)} of {of} pictures cannot be read and are left out: {', '.join(shown)}{more}",
        stacklevel=4,
    )

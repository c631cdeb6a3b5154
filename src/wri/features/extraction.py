"""Features of pictures on disk, computed by a backbone.

    files ─► those whose features are kept are looked up
          ─► the others are read by worker processes, and kept one by one

Features of a picture depend on its file and the backbone only: each picture passes through the
network alone and in one thread. So they are the same to the last bit with one worker and with many.
Files that are not pictures are named in a warning and left out.

Features are kept in one folder per backbone, in a file per picture that is named by the SHA-256 of
the picture. A damaged file is made again; if nothing can be written, nothing is kept.
"""

import hashlib
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from joblib import cpu_count

from wri.cache import cache_folder, open_atomic
from wri.datasets import Environment, ImageFolder
from wri.errors import InputError, shorten
from wri.features.backbones import Backbone, UnreadableError, as_backbone
from wri.jobs import LocalRunner, run_calls
from wri.progress import Progress, silent
from wri.threads import one_thread

CHUNK = 64  # pictures per job
MOST_WORKERS = 8  # unless more are asked for: each needs a third of a gigabyte
MOST_NAMED = 5  # broken pictures in a warning

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, eq=False, kw_only=True)
class PictureFeatures:
    """Features of the pictures that could be read.

    Parameters
    ----------
    x : ndarray of shape (n, width)
        Features, float32.
    kept : ndarray of shape (n,)
        Numbers of the pictures that they belong to.
    broken : mapping of Path to str
        Files that could not be read, with the reason.
    backbone : str
        Name of the backbone.
    digest : str
        Digest of the backbone.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.features import PictureFeatures
    >>> found = PictureFeatures(
    ...     x=np.zeros((2, 3)), kept=np.array([0, 2]), broken={}, backbone="pixels", digest=""
    ... )
    >>> found.x.shape
    (2, 3)
    """

    x: np.ndarray
    kept: np.ndarray
    broken: Mapping[Path, str]
    backbone: str
    digest: str


def extract(
    pictures: ImageFolder | Iterable[PathLike],
    backbone: Backbone | str | None = None,
    workers: int | None = None,
    folder: Path | None = None,
    progress: Progress = silent,
) -> PictureFeatures:
    """Compute features of pictures with a backbone; features are kept on disk.

    Parameters
    ----------
    pictures : ImageFolder or iterable of path-like
        Pictures.
    backbone : Backbone, str or None, default=None
        Backbone or its name. None: EfficientNet-Lite0.
    workers : int or None, default=None
        Processes that read and compute. None: the number of cores, at most 8. They are started only
        if there is work for them.
    folder : Path or None, default=None
        Folder of the kept features. None: `cache_folder()/pictures`.
    progress : callable, default=silent
        Called with (done, of) pictures.

    Returns
    -------
    features : PictureFeatures
        Features of the readable pictures.

    Raises
    ------
    InputError
        If no picture can be read or an option is wrong.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> from torch import nn
    >>> from wri.features import Backbone, Preprocessing, extract
    >>> backbone = Backbone("pixels", nn.Flatten(), Preprocessing(side=2, crop=1.0))
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "red.png")
    ...     Image.new("RGB", (4, 4), "red").save(path)
    ...     found = extract([path], backbone, workers=1, folder=Path(folder))
    >>> found.x.shape
    (1, 12)
    """
    paths = list_paths(pictures)
    backbone = as_backbone(backbone)
    digest = backbone.digest
    if workers is not None and workers < 1:
        raise InputError(f"workers must be 1 or more, not {workers}")
    store = _make_folder(folder or cache_folder() / "pictures", backbone.name, digest)
    found: dict[int, np.ndarray | str] = {}  # features, or the reason for none

    def take(number: int, made: np.ndarray | str) -> None:
        if not isinstance(made, str) and not np.isfinite(made).all():
            raise InputError(
                f"the features of {paths[number]} are not finite; check the backbone's weights and "
                "its preprocessing"
            )
        found[number] = made
        progress(len(found), len(paths))

    missing = []
    for number, path in enumerate(paths):
        try:
            with path.open("rb") as file:
                kept = store / f"{hashlib.file_digest(file, 'sha256').hexdigest()}.npy"
        except OSError as error:
            take(number, error.strerror or str(error))
            continue
        try:
            take(number, np.load(kept, allow_pickle=False))
        except (OSError, ValueError, EOFError):  # not there, or damaged
            missing.append((number, path, kept))
    chunks = [missing[start : start + CHUNK] for start in range(0, len(missing), CHUNK)]
    several = min(workers or min(cpu_count(), MOST_WORKERS), len(chunks))
    runner = LocalRunner(several, lambda job: several > 1)
    fixed = backbone.for_extraction() if chunks else backbone
    for _, made in run_calls(runner, _work, fixed, chunks, _name_chunk):
        for number, x in made:
            take(number, x)
    return _gather(paths, found, backbone.name, digest)


def picture_environments(
    pictures: ImageFolder,
    backbone: Backbone | str | None = None,
    workers: int | None = None,
    folder: Path | None = None,
    progress: Progress = silent,
) -> list[Environment]:
    """Compute the domains of a folder as environments of features.

    Parameters
    ----------
    pictures : ImageFolder
        Pictures.
    backbone : Backbone, str or None, default=None
        Backbone or its name. None: EfficientNet-Lite0.
    workers : int or None, default=None
        Processes that read and compute. None: the number of cores, at most 8.
    folder : Path or None, default=None
        Folder of the kept features. None: `cache_folder()/pictures`.
    progress : callable, default=silent
        Called with (done, of) pictures.

    Returns
    -------
    environments : list of Environment
        One environment per domain; y holds the numbers of the folder's classes.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> from torch import nn
    >>> from wri.datasets import ImageFolder
    >>> from wri.features import Backbone, Preprocessing, picture_environments
    >>> backbone = Backbone("pixels", nn.Flatten(), Preprocessing(side=2, crop=1.0))
    >>> with TemporaryDirectory() as folder:
    ...     for domain in ("day", "night"):
    ...         home = Path(folder, "pictures", domain, "red")
    ...         home.mkdir(parents=True)
    ...         Image.new("RGB", (4, 4), "red").save(home / "1.png")
    ...     pictures = ImageFolder(Path(folder, "pictures"))
    ...     made = picture_environments(pictures, backbone, workers=1, folder=Path(folder))
    >>> [(each.name, each.x.shape) for each in made]
    [('day', (1, 12)), ('night', (1, 12))]
    """
    return as_environments(pictures, extract(pictures, backbone, workers, folder, progress))


def as_environments(pictures: ImageFolder, found: PictureFeatures) -> list[Environment]:
    """Return the features of a folder's pictures by domain."""
    number = {label: n for n, label in enumerate(pictures.classes)}
    y = np.array([number[pictures.pictures[row].label] for row in found.kept])
    domain = pictures.groups[found.kept]
    rows = {name: domain == name for name in pictures.domains}
    return [Environment(name, found.x[own], y[own]) for name, own in rows.items()]


def list_paths(pictures: ImageFolder | Iterable[PathLike]) -> list[Path]:
    """Return the paths of the pictures, in their order."""
    if isinstance(pictures, ImageFolder):
        return pictures.paths
    if isinstance(pictures, str | os.PathLike):
        raise InputError(
            f"{shorten(pictures)} is one path; give a list of paths, or ImageFolder(root)"
        )
    paths = [Path(path) for path in pictures]
    if not paths:
        raise InputError("there are no pictures; give at least one path")
    return paths


def _gather(
    paths: Sequence[Path], found: dict[int, np.ndarray | str], backbone: str, digest: str
) -> PictureFeatures:
    """Put features into one table; warn of pictures without."""
    broken = {paths[n]: x for n, x in sorted(found.items()) if isinstance(x, str)}
    kept = np.array([n for n in range(len(paths)) if not isinstance(found[n], str)])
    if not len(kept):
        raise InputError(f"none of the {len(broken)} pictures could be read: {_listed(broken)}")
    if broken:
        warnings.warn(
            f"{len(broken)} of {len(paths)} pictures cannot be read and are left out: "
            f"{_listed(broken)}",
            stacklevel=3,
        )
    x = np.stack([found[n] for n in kept])
    return PictureFeatures(x=x, kept=kept, broken=broken, backbone=backbone, digest=digest)


def _work(
    backbone: Backbone, files: Sequence[tuple[int, Path, Path]]
) -> list[tuple[int, np.ndarray | str]]:
    """Compute and keep the features of some files; return them, or the reason for none."""
    made: list[tuple[int, np.ndarray | str]] = []
    with one_thread():
        for number, path, kept in files:
            try:
                x = backbone.features(path.read_bytes())
            except UnreadableError as error:
                made.append((number, str(error)))
                continue
            except OSError as error:
                made.append((number, error.strerror or str(error)))
                continue
            made.append((number, x))
            with suppress(OSError), open_atomic(kept) as file:
                np.save(file, x)
    return made


def _name_chunk(files: Sequence[tuple[int, Path, Path]]) -> str:
    return f"the features of {files[0][1]} and the next {len(files) - 1} pictures"


def _make_folder(folder: Path, name: str, digest: str) -> Path:
    """Make the folder of a backbone; warn if nothing can be kept there."""
    plain = "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in name)
    made = folder / f"{plain[:40]}-{digest[:32]}"
    try:
        made.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        warnings.warn(
            f"{made} cannot be used ({error}), so these features will be made again next time; "
            "set WRI_CACHE to a folder with free space",
            stacklevel=3,
        )
    return made


def _listed(broken: Mapping[Path, str]) -> str:
    """Return the first broken files with their reasons."""
    shown = [f"{path} ({shorten(trouble)})" for path, trouble in [*broken.items()][:MOST_NAMED]]
    more = f" and {len(broken) - MOST_NAMED} more" if len(broken) > MOST_NAMED else ""
    return ", ".join(shown) + more

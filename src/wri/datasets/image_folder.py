"""Folders of pictures as environments, in DomainBed's layout.

    ROOT/DOMAIN/CLASS/*.jpg, *.jpeg, *.png

A domain is an environment, and all domains have the same classes. The order is that of the names'
code points, the same on every machine. Names are compared in Unicode's composed form, because some
systems write umlauts as two characters. Hidden files and files of other kinds are ignored. The
pictures themselves are read when features are computed.
"""

import os
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from wri.errors import InputError, listed, shorten

SUFFIXES = (".jpg", ".jpeg", ".png")  # in any case
LAYOUT = "pictures lie in ROOT/DOMAIN/CLASS/*.jpg or *.png"


class Picture(NamedTuple):
    """Picture file with its label and domain.

    Attributes
    ----------
    path : Path
        Path of the file.
    label : str
        Name of its class.
    domain : str
        Name of its domain.

    Examples
    --------
    >>> from pathlib import Path
    >>> from wri.datasets import Picture
    >>> Picture(Path("PACS/sketch/dog/1.png"), "dog", "sketch").label
    'dog'
    """

    path: Path
    label: str
    domain: str


class ImageFolder:
    """Pictures of several domains, sorted into folders of classes.

    Parameters
    ----------
    root : path-like
        Folder whose subfolders are the domains.
    domains : iterable of str or None, default=None
        Names of some domains. None: all.

    Attributes
    ----------
    root : Path
        The folder.
    domains : tuple of str
        Names of the domains, sorted.
    classes : tuple of str
        Names of the classes, sorted.
    pictures : tuple of Picture
        Path, label and domain of each picture, sorted by domain, class and name.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from wri.datasets import ImageFolder
    >>> with TemporaryDirectory() as folder:
    ...     for domain in ("photo", "sketch"):
    ...         for label in ("cat", "dog"):
    ...             Path(folder, domain, label).mkdir(parents=True)
    ...             Path(folder, domain, label, "1.png").touch()
    ...     train, new = ImageFolder(folder).hold_out("sketch")
    >>> train.domains, new.domains, new.y.tolist()
    (('photo',), ('sketch',), ['cat', 'dog'])
    """

    def __init__(self, root: str | os.PathLike[str], domains: Iterable[str] | None = None) -> None:
        self.root = Path(root).expanduser()
        folders = _subfolders(self.root)
        if not folders:
            raise InputError(f"{self.root} holds no folders of domains; {LAYOUT}")
        if domains is not None:
            folders = {name: folders[name] for name in _check_domains(domains, folders, self.root)}
        classes = {name: _subfolders(folder) for name, folder in folders.items()}
        found = {
            (domain, label): _pictures(path)
            for domain, labels in classes.items()
            for label, path in labels.items()
        }
        if not any(found.values()):
            raise InputError(f"{self.root} holds no pictures ({', '.join(SUFFIXES)}); {LAYOUT}")
        self.domains = tuple(folders)
        self.classes = tuple(sorted({label for _, label in found}))
        self.pictures = tuple(
            Picture(path, label, domain)
            for (domain, label), paths in found.items()
            for path in paths
        )
        for label in self.classes:
            _check_class(label, {domain: found.get((domain, label)) for domain in folders})
        if len(self.domains) == 1 and domains is None:
            warnings.warn(
                f"{self.root} holds one domain, {self.domains[0]!r}: this is enough for "
                f"predictions, but training for a new domain needs at least two; {LAYOUT}",
                stacklevel=2,
            )

    def __len__(self) -> int:
        return len(self.pictures)

    def __repr__(self) -> str:
        return f"ImageFolder({str(self.root)!r}, domains={self.domains!r})"

    @property
    def paths(self) -> list[Path]:
        """Path of each picture."""
        return [picture.path for picture in self.pictures]

    @property
    def y(self) -> np.ndarray:  # [n]
        """Name of the class of each picture."""
        return np.array([picture.label for picture in self.pictures])

    @property
    def groups(self) -> np.ndarray:  # [n]
        """Name of the domain of each picture."""
        return np.array([picture.domain for picture in self.pictures])

    def count(self) -> dict[str, int]:
        """Return the number of pictures per domain.

        Returns
        -------
        counts : dict of str to int
            Numbers by domain.
        """
        counts = Counter(picture.domain for picture in self.pictures)
        return {domain: counts[domain] for domain in self.domains}

    def only(self, *domains: str) -> Self:
        """Return the pictures of some domains.

        Parameters
        ----------
        *domains : str
            Names of the domains.

        Returns
        -------
        folder : ImageFolder
            The same folder with these domains.

        Raises
        ------
        InputError
            If a domain is unknown.
        """
        kept = _check_domains(domains, self.domains, self.root)
        return self._part(tuple(kept), (each for each in self.pictures if each.domain in kept))

    def first(self, count: int) -> Self:
        """Return the first pictures of each class in each domain.

        Parameters
        ----------
        count : int
            Largest number of pictures per class and domain.

        Returns
        -------
        folder : ImageFolder
            The same folder with these pictures.
        """
        cells = groupby(self.pictures, lambda each: (each.domain, each.label))
        return self._part(self.domains, (each for _, some in cells for each in islice(some, count)))

    def _part(self, domains: tuple[str, ...], pictures: Iterable[Picture]) -> Self:
        part = object.__new__(type(self))
        part.root, part.classes, part.domains = self.root, self.classes, domains
        part.pictures = tuple(pictures)
        return part

    def hold_out(self, *domains: str) -> tuple[Self, Self]:
        """Split the folder into training domains and held-out domains.

        Parameters
        ----------
        *domains : str
            Names of the domains to hold out.

        Returns
        -------
        training : ImageFolder
            All other domains.
        held_out : ImageFolder
            These domains.

        Raises
        ------
        InputError
            If a domain is unknown or none is left.
        """
        held = _check_domains(domains, self.domains, self.root)
        kept = [name for name in self.domains if name not in held]
        if not kept:
            raise InputError(f"no domain of {self.root} is left to learn from; hold out fewer")
        return self.only(*kept), self.only(*held)


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _subfolders(folder: Path) -> dict[str, Path]:
    """Return folders by composed name, in the order of code points, without hidden ones."""
    try:
        inside = [path for path in folder.iterdir() if path.is_dir()]
    except OSError as error:
        raise InputError(
            f"{folder} cannot be read as a folder: {error.strerror or error}; {LAYOUT}"
        ) from error
    named = sorted((_composed(path.name), path) for path in inside if path.name[0] != ".")
    for (name, path), (after, other) in pairwise(named):
        if name == after:
            raise InputError(f"{path} and {other} have the same name; merge them")
    return dict(named)


def _pictures(folder: Path) -> list[Path]:
    files = (path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    kept = [path for path in files if path.name[0] != "." and path.is_file()]
    return sorted(kept, key=lambda path: (_composed(path.name), path.name))


def _check_domains(names: Iterable[str], known: Iterable[str], root: Path) -> list[str]:
    """Return the names asked for, each once, in the folder's order."""
    known = list(known)
    asked = {_composed(name) for name in names}
    unknown = sorted(asked - set(known))
    if unknown or not asked:
        what = f"no domain {listed(unknown)}" if unknown else "no domain that was named"
        raise InputError(f"{root} has {what}, only {listed(known)}")
    return [name for name in known if name in asked]


def _check_class(label: str, pictures: dict[str, list[Path] | None]) -> None:
    """Refuse a class that a domain has no folder for, or without pictures; warn of empty ones."""
    for domain, paths in pictures.items():
        if paths is None:
            raise InputError(
                f"domain {domain!r} has no folder for class {shorten(label)!r}, which others have; "
                "rename it, or make an empty folder if the domain has no such picture"
            )
    empty = [domain for domain, paths in pictures.items() if not paths]
    if len(empty) == len(pictures):
        raise InputError(
            f"class {shorten(label)!r} has no picture in any domain; put some there, or remove its "
            "folders"
        )
    if empty:
        warnings.warn(f"class {shorten(label)!r} has no picture in {listed(empty)}", stacklevel=3)

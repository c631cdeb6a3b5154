"""DomainBed's five sets of photographs by name: contents and sources.

A set is searched below the folder `WRI_DATA`, with the names that DomainBed and the sets' own
archives use. Domains and the number of classes must be right; a number of pictures that differs
from the published one gives a warning, since corrected copies exist.
"""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wri.cache import Source, find_source, given_folders, given_words
from wri.datasets.image_folder import ImageFolder
from wri.errors import InputError


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Published set of pictures.

    Parameters
    ----------
    name : str
        Name in papers.
    folders : tuple of str
        Possible names of its folder, DomainBed's name first.
    counts : tuple of mapping of str to int
        Number of pictures per domain; several versions if several are in use, the usual one first.
    classes : int
        Number of classes.
    source : str
        Where to get it.
    licence : str
        Its licence.

    Examples
    --------
    >>> from wri.datasets import IMAGE_SETS
    >>> IMAGE_SETS["pacs"].domains, IMAGE_SETS["pacs"].total
    (('art_painting', 'cartoon', 'photo', 'sketch'), 9991)
    """

    name: str
    folders: tuple[str, ...]
    counts: tuple[Mapping[str, int], ...]
    classes: int
    source: str
    licence: str

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the domains."""
        return tuple(self.counts[0])

    @property
    def total(self) -> int:
        """Number of pictures of the usual version."""
        return sum(self.counts[0].values())

    @property
    def about(self) -> str:
        """Description of the set."""
        domains = ", ".join(f"{name} {count:,}" for name, count in self.counts[0].items())
        return f"{self.total:,} pictures of {self.classes} classes: {domains}"

    @property
    def remedy(self) -> str:
        """How to get the set."""
        folder = self.folders[0]
        return (
            f"get it from {self.source}, unpack it to {folder}/DOMAIN/CLASS/*.jpg, and set "
            f"WRI_DATA to the folder that holds {folder}; licence: {self.licence}"
        )


NO_LICENCE = "not stated (published for research; the pictures belong to their makers)"
DOMAINBED = "DomainBed's download script (github.com/facebookresearch/DomainBed)"
LOCATIONS = ("location_100", "location_38", "location_43", "location_46")

IMAGE_SETS = {
    each.name.lower(): each
    for each in (
        ImageSet(
            name="VLCS",
            folders=("VLCS", "vlcs"),
            counts=({"Caltech101": 1415, "LabelMe": 2656, "SUN09": 3282, "VOC2007": 3376},),
            classes=5,
            source=f"{DOMAINBED}, download_vlcs",
            licence=NO_LICENCE,
        ),
        ImageSet(
            name="PACS",
            folders=("PACS", "pacs", "kfold"),
            counts=({"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929},),
            classes=7,
            source=f"{DOMAINBED}, download_pacs",
            licence=NO_LICENCE,
        ),
        ImageSet(
            name="OfficeHome",
            folders=("office_home", "OfficeHome", "OfficeHomeDataset_10072016"),
            counts=({"Art": 2427, "Clipart": 4365, "Product": 4439, "Real World": 4357},),
            classes=65,
            source=f"hemanthdv.org/OfficeHome-Dataset or {DOMAINBED}, download_office_home",
            licence="non-commercial research and education only, by the authors' notice",
        ),
        ImageSet(
            name="TerraIncognita",
            folders=("terra_incognita", "TerraIncognita"),
            counts=(
                dict(zip(LOCATIONS, (4879, 9767, 4020, 6122), strict=True)),
                # what the download has given since 2021
                dict(zip(LOCATIONS, (4741, 9736, 3970, 5883), strict=True)),
            ),
            classes=10,
            source=(
                f"lila.science/datasets/caltech-camera-traps by {DOMAINBED}, "
                "download_terra_incognita"
            ),
            licence="Community Data License Agreement, permissive variant",
        ),
        ImageSet(
            name="DomainNet",
            folders=("domain_net", "DomainNet"),
            counts=(
                {
                    "clipart": 48129,
                    "infograph": 51605,
                    "painting": 72266,
                    "quickdraw": 172500,
                    "real": 172947,
                    "sketch": 69128,
                },
            ),
            classes=345,
            source=f"ai.bu.edu/M3SDA or {DOMAINBED}, download_domain_net",
            licence="non-commercial research and education only, by the authors' fair use notice",
        ),
    )
}
"""Sets by name in lower case."""


def find_image_set(name: str) -> ImageSet:
    """Return the entry of a name, in any case."""
    found = IMAGE_SETS.get(name.lower())
    if found is None:
        known = ", ".join(each.name for each in IMAGE_SETS.values())
        raise InputError(
            f"there is no set of pictures {name!r}, only {known}; for any other folder use "
            "ImageFolder(path)"
        )
    return found


def where_images(name: str) -> str | None:
    """Return the place from which `load_images` would read.

    Parameters
    ----------
    name : str
        VLCS, PACS, OfficeHome, TerraIncognita or DomainNet, in any case.

    Returns
    -------
    place : str or None
        Folder and its origin; None if the set is not on this machine.

    Raises
    ------
    InputError
        If the name is unknown.

    Examples
    --------
    >>> from wri.datasets import where_images
    >>> where_images("PACS")  # doctest: +SKIP
    '/data/PACS (WRI_DATA)'
    """
    source = find_images(name)
    return source and str(source)


def find_images(name: str) -> Source | None:
    """Return the folder that `load_images` would read; None if it is not here."""
    return find_source(find_image_set(name).folders, (), Path.is_dir)


def load_images(name: str, root: str | os.PathLike[str] | None = None) -> ImageFolder:
    """Load one of DomainBed's sets of pictures and check it.

    Parameters
    ----------
    name : str
        VLCS, PACS, OfficeHome, TerraIncognita or DomainNet, in any case.
    root : path-like or None, default=None
        Its folder. None: searched below `WRI_DATA`.

    Returns
    -------
    folder : ImageFolder
        The pictures.

    Raises
    ------
    InputError
        If the set is not found, or domains or classes differ from the published ones.

    Examples
    --------
    >>> from wri.datasets import load_images
    >>> load_images("PACS").domains  # doctest: +SKIP
    ('art_painting', 'cartoon', 'photo', 'sketch')
    """
    published = find_image_set(name)
    if root is None:
        source = find_images(name)
        if source is None:
            raise InputError(f"{published.name} was not found {_searched(published)}")
        root = source.path
    missing = [domain for domain in published.domains if not (Path(root) / domain).is_dir()]
    if missing:
        raise InputError(
            f"{root} is not {published.name}: it has no folder {missing[0]!r}; {published.remedy}"
        )
    folder = ImageFolder(root, published.domains)
    if len(folder.classes) != published.classes:
        raise InputError(
            f"{root} has {len(folder.classes)} classes, but {published.name} has "
            f"{published.classes}; {published.remedy}"
        )
    found = folder.count()
    odd = [
        f"{domain} has {found[domain]:,} pictures instead of {count:,}"
        for domain, count in published.counts[0].items()
        if found[domain] != count
    ]
    if found not in published.counts:
        warnings.warn(
            f"{root}: not all of {published.name} as published: {', '.join(odd)}", stacklevel=2
        )
    return folder


def describe_images(name: str) -> dict[str, Any]:
    """Return the document of `wri data NAME --json`."""
    published = find_image_set(name)
    document: dict[str, Any] = {
        "name": published.name,
        "holds": published.about,
        "found": where_images(name),
        "looked_for": [str(source.path) for source in given_folders(published.folders)],
        "source": published.source,
        "licence": published.licence,
        "remedy": published.remedy,
    }
    if document["found"] is None:
        return document
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            document["counts"] = load_images(name).count()
        except InputError as error:
            return {**document, "problems": [str(error)]}
    return {**document, "problems": [str(warning.message) for warning in caught]}


def describe_lines(found: Mapping[str, Any]) -> list[str]:
    """Return the document as lines of text."""
    lines = [f"{found['name']}: {found['holds']}"]
    if found["found"] is None:
        return [*lines, f"not found {_searched(find_image_set(found['name']))}"]
    lines.append(f"found in {found['found']}")
    counts = found.get("counts", {})
    lines += [f"  {domain}: {count:,} pictures" for domain, count in counts.items()]
    problems = found["problems"] or ["domains, classes and numbers of pictures are as published"]
    return [*lines, *problems, f"source: {found['source']}; licence: {found['licence']}"]


def _searched(published: ImageSet) -> str:
    names = ", ".join(published.folders)
    return f"as {names} below {given_words()}; {published.remedy}"

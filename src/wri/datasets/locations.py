"""Data sets on this machine, their places, and how to get the others."""

from typing import Any

from wri.cache import cache_folder
from wri.datasets import heart, mnist
from wri.datasets.builtin import BUILTIN
from wri.datasets.heart import load_heart, where_heart
from wri.datasets.image_sets import IMAGE_SETS, describe_images, describe_lines, where_images
from wri.datasets.mnist import load_mnist, where_mnist
from wri.errors import InputError


def dataset_locations() -> dict[str, Any]:
    """Return the document of `wri data --json`."""
    return {
        "made on the spot": {name: each.about for name, each in BUILTIN.items()},
        "mnist": {
            "found": where_mnist(),
            "for": ["cmnist", "hcmnist", "hcmnist-cs"],
            "fetch": "wri data mnist",
            "remedy": mnist.REMEDY,
            "licence": mnist.LICENCE,
        },
        "heart": {
            "found": where_heart(),
            "for": ["reproduce heart"],
            "fetch": "wri data heart",
            "remedy": heart.REMEDY,
            "licence": heart.LICENCE,
        },
        "pictures": {
            each.name: {
                "found": where_images(name),
                "holds": each.about,
                "remedy": each.remedy,
                "licence": each.licence,
            }
            for name, each in IMAGE_SETS.items()
        },
        "cache": str(cache_folder()),
    }


def as_lines(document: dict[str, Any]) -> list[str]:
    """Return the document as lines of text, one per data set."""
    made = document["made on the spot"].items()
    return [
        *(
            f"{name}: {about}; made on the spot, `wri data {name} --write {name}.csv`; licence as "
            "this package, MIT"
            for name, about in made
        ),
        _published("MNIST", "tables 1 to 3", document["mnist"]),
        _published("heart disease", "four hospitals", document["heart"]),
        *(_pictures(name, entry) for name, entry in document["pictures"].items()),
        f"features and downloads are kept in {document['cache']}",
    ]


def one_dataset(name: str) -> dict[str, Any]:
    """Return the document of `wri data NAME --json`."""
    if name.lower() in IMAGE_SETS:
        return describe_images(name)
    everything = dataset_locations()
    if name.lower() in ("mnist", "heart"):
        return {"name": name.lower(), **everything[name.lower()]}
    if name in BUILTIN:
        return {"name": name, "holds": BUILTIN[name].about, "found": "made on the spot"}
    known = ", ".join([*BUILTIN, "mnist", "heart", *(each.name for each in IMAGE_SETS.values())])
    raise InputError(f"there is no data set {name!r}, only {known}")


def fetch_dataset(name: str) -> str | None:
    """Fetch a published data set that is not here; return its place, or None for other data sets.

    The data are read completely and compared with their published checksum.
    """
    load = {"heart": load_heart, "mnist": load_mnist}.get(name.lower())
    if load is None:
        return None
    load()
    return where_heart() if name.lower() == "heart" else where_mnist()


def one_as_lines(document: dict[str, Any]) -> list[str]:
    """Return the document of one data set as lines of text."""
    if "looked_for" in document:
        return describe_lines(document)
    if document["name"] == "mnist":
        return [_published("MNIST", "tables 1 to 3", document)]
    if document["name"] == "heart":
        return [_published("heart disease", "four hospitals", document)]
    return [f"{document['name']}: {document['holds']}; made on the spot"]


def _published(title: str, aside: str, entry: dict[str, Any]) -> str:
    where = (
        f"in {entry['found']}, verified when it is read"
        if entry["found"]
        else f"not here; fetched when needed, or with `{entry['fetch']}`; {entry['remedy']}"
    )
    return f"{title}, for {', '.join(entry['for'])} ({aside}): {where}; licence: {entry['licence']}"


def _pictures(name: str, entry: dict[str, Any]) -> str:
    where = f"in {entry['found']}" if entry["found"] else "not here"
    return f"{name}, pictures: {where}; licence: {entry['licence']}; details: `wri data {name}`"

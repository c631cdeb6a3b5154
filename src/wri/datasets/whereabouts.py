"""Which data sets are here, where they were found, and how to get the rest."""

from typing import Any

from wri.cache import cache_folder
from wri.datasets import heart, mnist
from wri.datasets.coloured_mnist import COLOURED_MNIST
from wri.datasets.heart import where_heart
from wri.datasets.mnist import where_mnist
from wri.datasets.named import NAMED


def whereabouts() -> dict[str, Any]:
    """What `wri data --json` prints."""
    return {
        "made on the spot": {name: each.about for name, each in NAMED.items()},
        "mnist": {"found": where_mnist(), "for": list(COLOURED_MNIST), "remedy": mnist.REMEDY},
        "heart": {
            "found": where_heart(),
            "for": ["reproduce heart"],
            "remedy": heart.REMEDY,
        },
        "cache": str(cache_folder()),
    }


def as_lines(document: dict[str, Any]) -> list[str]:
    """The same in words, a data set a line."""
    made = document["made on the spot"].items()
    return [
        *(f"{name}: {about}; made on the spot" for name, about in made),
        _published("MNIST", "tables 1 to 3", document["mnist"]),
        _published("heart disease", "four hospitals", document["heart"]),
        f"features and downloads are kept in {document['cache']}",
    ]


def _published(title: str, aside: str, entry: dict[str, Any]) -> str:
    where = (
        f"in {entry['found']}, verified when it is read"
        if entry["found"]
        else f"not here, fetched when it is needed; {entry['remedy']}"
    )
    return f"{title}, for {', '.join(entry['for'])} ({aside}): {where}"

"""Data sets by name: small simulations made on the spot, and published ones, found or fetched."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wri.cache import cache_folder
from wri.datasets import heart, mnist
from wri.datasets.environments import Environment, joined
from wri.datasets.heart import load_heart, where_heart
from wri.datasets.hospitals import REVERSED, TRAINING, hospitals
from wri.datasets.image_sets import IMAGE_SETS, describe_images, describe_lines, where_images
from wri.datasets.mnist import load_mnist, where_fashion_mnist, where_mnist
from wri.datasets.simulation import Gaussian2D, Simulation, SimulationSetting
from wri.errors import InputError, shorten

if TYPE_CHECKING:
    import pandas as pd

ROWS = 500  # of each simulated hospital
COLUMNS = {"hospitals": ("smoking", "marker", "noise"), "gaussian2d": ("invariant", "spurious")}
FETCHED: dict[str, Callable[[], Any]] = {"mnist": load_mnist, "heart": load_heart}


class BuiltinDataset(NamedTuple):
    """Description of a built-in data set and the function that makes it."""

    about: str
    make: Callable[[int], list[Environment]]  # from a seed


SMALL = SimulationSetting(
    invariant_shift=0.15, parity=85.0, environments=4, classes=3, d_inv=5, d_spu=5
)
BUILTIN = {
    "simulation": BuiltinDataset(
        "appendix E.2, small: 4 environments × 500 rows, 5 invariant and 5 spurious columns, "
        "3 classes",
        lambda seed: Simulation.balanced(SMALL, 500, seed)[1],
    ),
    "gaussian2d": BuiltinDataset(
        "Figure 1: 3 environments × 1000 rows, an invariant and a spurious column, 2 classes",
        lambda seed: Gaussian2D().sample(1000, seed),
    ),
    "hospitals": BuiltinDataset(
        "the paper's example: 5 environments × 500 rows, smoking, a marker that misleads in the "
        "last one, and noise, 2 classes",
        lambda seed: hospitals(ROWS, seed, (*TRAINING, REVERSED)),
    ),
}

TITLES = {
    "mnist": ("MNIST", "tables 1 to 3, figure E.6, ablation"),
    "heart": ("heart disease", "four hospitals"),
    "fashion-mnist": ("Fashion-MNIST", "in the digits' place"),
}
"""Title of a published table, and what it is for."""


def load_builtin(name: str, seed: int = 0) -> list[Environment]:
    """Make the environments of a built-in data set.

    Parameters
    ----------
    name : str
        Key of `BUILTIN`.
    seed : int, default=0
        Seed of parameters and rows.

    Returns
    -------
    environments : list of Environment
        The environments.

    Raises
    ------
    InputError
        If the name is unknown.

    Examples
    --------
    >>> from wri.datasets import load_builtin
    >>> [(each.name, each.x.shape) for each in load_builtin("gaussian2d")][:1]
    [('environment 1', (1000, 2))]
    """
    if name not in BUILTIN:
        raise InputError(
            f"there is no built-in data set {name!r}, only {', '.join(BUILTIN)}; for a file give "
            "--data FILE --target COLUMN --env COLUMN"
        )
    return BUILTIN[name].make(seed)


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
        "fashion-mnist": {
            "found": where_fashion_mnist(),
            "for": ["python studies/fashion.py"],
            "remedy": mnist.FASHION_REMEDY,
            "licence": mnist.FASHION_LICENCE,
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


def one_dataset(name: str) -> dict[str, Any]:
    """Return the document of `wri data NAME --json`; fetch what can be fetched and is not here."""
    if name.lower() in IMAGE_SETS:
        return describe_images(name)
    if name in BUILTIN:
        return {"name": name, "holds": BUILTIN[name].about, "found": "made on the spot"}
    if name.lower() not in TITLES:
        known = ", ".join([*BUILTIN, *TITLES, *(each.name for each in IMAGE_SETS.values())])
        raise InputError(f"there is no data set {name!r}, only {known}")
    name = name.lower()
    if name in FETCHED:
        FETCHED[name]()
    return {"name": name, **dataset_locations()[name]}


def as_lines(document: dict[str, Any]) -> list[str]:
    """Return the document of all data sets or of one as lines of text."""
    if "looked_for" in document:
        return describe_lines(document)
    if document.get("name") in TITLES:
        return [_published(document["name"], document)]
    if "name" in document:
        return [f"{document['name']}: {document['holds']}; built in"]
    return [
        *(
            f"{name}: {about}; built in, `wri data {name} --write {name}.csv`; licence as this "
            "package, MIT"
            for name, about in document["made on the spot"].items()
        ),
        *(_published(name, document[name]) for name in TITLES),
        *(
            f"{name}, pictures: {'in ' + entry['found'] if entry['found'] else 'not here'}; "
            f"licence: {entry['licence']}; details: `wri data {name}`"
            for name, entry in document["pictures"].items()
        ),
        f"features and downloads are kept in {document['cache']}",
    ]


def _published(name: str, entry: dict[str, Any]) -> str:
    title, aside = TITLES[name]
    fetched = f"fetched when needed, or with `{entry['fetch']}`; " if "fetch" in entry else ""
    where = (
        f"in {entry['found']}, verified when it is read"
        if entry["found"]
        else f"not here; {fetched}{entry['remedy']}"
    )
    return f"{title}, for {', '.join(entry['for'])} ({aside}): {where}; licence: {entry['licence']}"


def export_table(name: str, path: Path, seed: int = 0) -> list[Path]:
    """Write a data set as CSV and return the new files.

    For hospitals a second file, `…-new.csv`, has a hospital whose marker means the opposite.
    """
    if path.suffix.lower() != ".csv":
        raise InputError(f"--write {shorten(path)} must end in .csv")
    if name == "heart":
        tables = {path: load_heart()}
    elif name == "hospitals":
        tables = {
            path: _frame(name, hospitals(ROWS, seed)),
            path.with_name(f"{path.stem}-new.csv"): _frame(name, [REVERSED.sample(ROWS, seed)]),
        }
    else:
        tables = {path: _frame(name, load_builtin(name, seed))}
    for file in tables:
        if file.exists():
            raise InputError(f"{shorten(file)} exists; name another file, or remove it")
    for file, frame in tables.items():
        frame.to_csv(file, index=False, float_format="%.6g")
    return list(tables)


def _frame(name: str, sites: list[Environment]) -> "pd.DataFrame":
    import pandas as pd

    x, y, site = joined(sites)
    columns = COLUMNS.get(name, [f"x{k}" for k in range(x.shape[1])])
    target, where = ("sick", "hospital") if name == "hospitals" else ("y", "site")
    return pd.DataFrame(x, columns=list(columns)).assign(**{target: y, where: site})

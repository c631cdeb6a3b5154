"""Mean log-loss of rows that `verdict` calls supported, rare and outside.

    WRI_DATA=… python benchmarks/loss_by_verdict.py [--seeds 5] [--first 0] [--json]

ERM and WRI with their defaults and evidence on outputs or on x, 500 patients of each training
hospital; 3000 other patients of each kind of hospital. "fixed": the hospitals of
`wri.datasets.hospitals`, "drawn": others for every seed, "heart": each hospital of UCI's heart
disease the new one of models of the other three (left out where the data are not there). Rows of
all seeds are taken together.
"""

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import torch

import wri
from wri.datasets import hospitals, joined, load_heart
from wri.datasets.hospitals import drawn_hospitals
from wri.errors import InputError
from wri.experiments.heart import split
from wri.experiments.hospitals import FIXED, others

VERDICTS = ("supported", "rare", "outside")
Rows = tuple[np.ndarray, np.ndarray]
Case = tuple[str, Rows, np.ndarray, dict[str, Rows]]


def cases(seed: int) -> Iterator[Case]:
    """Name, training rows with their sites, and rows to judge by where they come from."""
    for kind, chosen in (("fixed", FIXED), ("drawn", drawn_hospitals(seed))):
        x, y, site = joined(hospitals(500, seed, chosen.training))
        same = joined(others(chosen.training, seed))
        tested = {"training hospitals": (same.x, same.y)}
        new = (chosen.reversed_marker, chosen.unrelated_marker)
        for where, hospital in zip(("marker reversed", "marker unrelated"), new, strict=True):
            patients = hospital.sample(3000, seed)
            tested[where] = (patients.x, patients.y)
        yield kind, (x, y), site, tested
    try:
        table = load_heart()
    except InputError:
        return
    for hospital in table["hospital"].unique():
        known, fresh = split(table, hospital, seed)
        rows = (np.asarray(fresh.x, float), np.asarray(fresh.y))
        yield (
            "heart",
            (np.asarray(known.x, float), known.y),
            known.site,
            {"left-out hospital": rows},
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    losses: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for seed in range(given.first, given.first + given.seeds):
        for kind, (x, y), site, tested in cases(seed):
            for name in ("ERM", "WRI"):
                for on in ("outputs", "x"):
                    estimator = getattr(wri, f"{name}Classifier")
                    model = estimator(random_state=seed, evidence_on=on, site_spread=False)
                    model.fit(x, y, groups=site)
                    for where, (rows, sick) in tested.items():
                        chance = model.predict_proba(rows)[np.arange(len(sick)), sick]
                        for verdict, loss in zip(model.verdict(rows), -np.log(chance), strict=True):
                            losses[kind, where, name, on, verdict].append(loss)
    found = []
    for kind, where, name, on in dict.fromkeys(key[:4] for key in losses):
        own = [losses[kind, where, name, on, verdict] for verdict in VERDICTS]
        total = sum(map(len, own))
        line = {"data": f"{kind}, {where}", "model": name, "evidence_on": on}
        for verdict, each in zip(VERDICTS, own, strict=True):
            line[verdict] = float(np.mean(each)) if each else None
            line[f"{verdict} share"] = len(each) / total
        found.append(line)
    if given.json:
        print(json.dumps(found))
        return
    print("| rows | model | evidence on | supported | rare | outside | rare (%) | outside (%) |")
    print("|---" * 8 + "|")
    for line in found:
        means = ["–" if line[v] is None else f"{line[v]:.3f}" for v in VERDICTS]
        shares = [f"{100 * line[f'{v} share']:.1f}" for v in VERDICTS[1:]]
        words = [line["data"], line["model"], line["evidence_on"], *means, *shares]
        print(f"| {' | '.join(words)} |")


if __name__ == "__main__":
    main()

"""How pairs of environments with little overlap should count in WRI's penalty.

    python studies/overlap_power.py [--first 1000] [--seeds 4] [--json]

Sites of `insured_sites.py`, λ from 0.3 to 10, pairs counted by the power 0, 1 and 2 of their
overlap. Printed is the mean loss at new sites by kind, in per cent above ERM's (λ = 0).
"""

import argparse
import json

import numpy as np

from insured_sites import KINDS, Design, sample_table
from wri.stacked import CROSS_ENTROPY, SQUARED
from wri.training import Bank, ModelSpec, Run, train

LAMBDAS, POWERS = (0.3, 1.0, 3.0, 10.0), (0.0, 1.0, 2.0)
LEARNED = 0.8  # of a site's rows, as an estimator has it
DESIGNS = [
    *(
        Design(task, sites, overlap)
        for task in ("classes", "numbers")
        for sites in (2, 4)
        for overlap in ("full", "partial", "none")
    ),
    *(Design(task, 4, "partial", 100, 12) for task in ("classes", "numbers")),
]


def specs() -> dict[str, ModelSpec]:
    """What is trained, by name."""
    found = {
        "ERM": ModelSpec.of("erm", preset="table"),
        "VREx": ModelSpec.of("vrex", preset="table"),
    }
    for power in POWERS:
        for weight in LAMBDAS:
            found[f"WRI, power {power:g}, λ = {weight:g}"] = ModelSpec.of(
                "wri",
                preset="table",
                hyper={"penalty_weight": weight},
                options={"overlap_power": power},
            )
    return found


def measured(design: Design, seed: int) -> dict[str, list[float]]:
    """Mean loss at new sites of each kind."""
    training, new = sample_table(design, seed)
    sites = [*training, *(site for kind in KINDS for site in new[kind])]
    x, y = (np.concatenate(parts) for parts in zip(*sites, strict=True))
    classes = design.task == "classes"
    bank = Bank(x, y, loss=CROSS_ENTROPY if classes else SQUARED, classes=2 if classes else None)
    rows = np.split(np.arange(len(x)), np.cumsum([len(site.y) for site in sites])[:-1])
    learned = [own[: int(LEARNED * len(own))] for own in rows[: design.sites]]
    tested = {str(k): own for k, own in enumerate(rows[design.sites :])}
    runs = [Run(spec, bank, learned, seed=seed, evaluate=tested) for spec in specs().values()]
    records = train(runs, checkpoint_every=10_000, measures=("loss",), side_by_side=False)
    return {
        name: np.reshape([record.measures["loss"][k][-1] for k in tested], (len(KINDS), -1))
        .mean(1)
        .tolist()
        for name, record in zip(specs(), records, strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=1000, help="first seed")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    given = parser.parse_args()
    found = {}
    for design in DESIGNS:
        seeds = range(given.first, given.first + given.seeds)
        each = [measured(design, seed) for seed in seeds]
        title = f"{design.name}, {design.noise} noise columns"
        found[title] = {name: np.mean([one[name] for one in each], 0).tolist() for name in each[0]}
        if not given.json:
            print(f"\n*{title}*\n\n| | {' | '.join(KINDS)} |\n|---|---|---|---|")
            for name, means in found[title].items():
                pairs = zip(means, found[title]["ERM"], strict=True)
                cells = [f"{mean:.3f} ({100 * (mean / erm - 1):+.1f})" for mean, erm in pairs]
                print(f"| {name} | {' | '.join(cells)} |", flush=True)
    if given.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

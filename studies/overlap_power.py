"""How pairs of environments with little overlap should count in WRI's penalty.

    python studies/overlap_power.py [--first 0] [--seeds 100] [--json]

Four sites of `insured_sites.py`, and the same with a season that matters for the outcome: a cause
whose means are six standard deviations apart. WRI's weights see columns that matter, so only there
do sites share nothing that counts. Pairs count by the power 0, 1 and 2 of their overlap. The power
was chosen on seeds 1000 to 1003.
"""

import argparse
import json

import numpy as np
from scipy.special import expit

from insured_sites import APART, KINDS, NEW, STRENGTHS, TESTED, Design, Site, sample_table
from wri.stacked import CROSS_ENTROPY, SQUARED
from wri.training import Bank, ModelSpec, Run, train

LAMBDAS, POWERS = (0.5, 1.6, 5.0), (0.0, 1.0, 2.0)
CAUSE = "cause apart"
DESIGNS = {
    "the same distribution": "full",
    "causes differ": "partial",
    "and seasons that do not matter": "none",
    "and seasons that matter": CAUSE,
}  # kinds of overlap
EFFECT = 0.3  # of the season on the outcome; 1 (numbers) or 2 (classes) is that of the cause


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


def sample_cause_apart(design: Design, seed: int) -> tuple[list[Site], dict[str, list[Site]]]:
    """Training sites, and new sites by kind; the season is a cause."""
    random = np.random.default_rng([seed, design.sites, len(design.task)])
    low, high = STRENGTHS[design.marker]

    def sample(strength: float, place: int, n: int) -> Site:
        cause = random.normal(random.uniform(-1.5, 1.5), 1.0, n)
        season = random.normal(APART * (place - (design.sites - 1) / 2), 1.0, n)
        if design.task == "classes":
            y = (random.random(n) < expit(2 * cause + EFFECT * season)).astype(int)
            marker = random.normal(strength * (2 * y - 1), 1.0)
        else:
            y = cause + EFFECT * season + random.normal(size=n)
            marker = random.normal(strength * y, 1.0)
        noise = random.normal(size=(n, design.noise))
        return Site(np.column_stack([cause, marker, season, noise]), y)

    training = [sample(random.uniform(low, high), k, design.rows) for k in range(design.sites)]
    ranges = {"unchanged": (low, high), "unrelated": (0, 0), "reversed": (-high, -low)}
    new = {
        kind: [
            sample(random.uniform(*ranges[kind]), int(random.integers(design.sites)), TESTED)
            for _ in range(NEW)
        ]
        for kind in KINDS
    }
    return training, new


def measured(design: Design, seed: int) -> dict[str, list[float]]:
    """Mean loss at new sites of each kind."""
    sample = sample_cause_apart if design.overlap == CAUSE else sample_table
    training, new = sample(design, seed)
    sites = [*training, *(site for kind in KINDS for site in new[kind])]
    x, y = (np.concatenate(parts) for parts in zip(*sites, strict=True))
    classes = design.task == "classes"
    bank = Bank(x, y, loss=CROSS_ENTROPY if classes else SQUARED, classes=2 if classes else None)
    rows = np.split(np.arange(len(x)), np.cumsum([len(site.y) for site in sites])[:-1])
    tested = {str(k): own for k, own in enumerate(rows[design.sites :])}
    runs = [
        Run(spec, bank, rows[: design.sites], seed=seed, evaluate=tested)
        for spec in specs().values()
    ]
    records = train(runs, checkpoint_every=10_000, measures=("loss",), side_by_side=False)
    return {
        name: np.reshape([record.measures["loss"][k][-1] for k in tested], (len(KINDS), -1))
        .mean(1)
        .tolist()
        for name, record in zip(specs(), records, strict=True)
    }


def above_erm(each: list[dict[str, list[float]]], name: str) -> str:
    """Loss in per cent above ERM's by kind, mean ± standard error over seeds."""
    above = 100 * np.array([np.divide(one[name], one["ERM"]) - 1 for one in each])  # [seeds, kinds]
    error = above.std(0, ddof=1) / np.sqrt(len(above))
    pairs = zip(above.mean(0), error, strict=True)
    return " / ".join(f"{mean:+.1f} ± {each:.1f}" for mean, each in pairs).replace("-", "−")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    given = parser.parse_args()
    seeds, found = range(given.first, given.first + given.seeds), {}
    for task in ("classes", "numbers"):
        each = {
            title: [measured(Design(task, 4, overlap), seed) for seed in seeds]
            for title, overlap in DESIGNS.items()
        }
        found[task] = {
            title: {name: np.mean([one[name] for one in own], 0).tolist() for name in own[0]}
            for title, own in each.items()
        }
        if given.json:
            continue
        kinds = f"{' / '.join(KINDS)}, mean ± standard error"
        about = f"{task.capitalize()}, 4 sites of 300: loss in % above ERM's, {kinds}"
        print(f"*{about}, seeds {seeds[0]} to {seeds[-1]}*\n")
        print(f"| | {' | '.join(DESIGNS)} |\n|---|{'---|' * len(DESIGNS)}")
        for name in list(specs())[1:]:
            print(f"| {name} | {' | '.join(above_erm(own, name) for own in each.values())} |")
        print(flush=True)
    if given.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

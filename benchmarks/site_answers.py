"""How often does `wri site` say yes, and how often does `wri predict --target` raise an alarm?

    python benchmarks/site_answers.py answers      # about 5 minutes on one core
    python benchmarks/site_answers.py alarms       # less than a minute

answers: tables of 4 or 8 training sites with 300 rows (a cause, a marker, a category, noise) are
fitted as `wri fit` does, and new sites of several kinds are judged by the rules of
`wri.evaluation.site_answer`. alarms: predictions that do not depend on the outcome and lose as much
as a constant, on average; every alarm is false.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from wri.datasets.table_rows import read_rows
from wri.evaluation.candidates import FitOptions
from wri.evaluation.fitting import fit_table
from wri.evaluation.outcomes import LEVEL, loss_p, ranking_p
from wri.evaluation.site_answer import answer_site
from wri.evaluation.verdict import attach_summary, read_summary

WARDS = ("A", "B", "C")
ANSWERS = ("yes", "care", "no")
ALARM_SEED = 2000


def make_site(random, name, marker, n=300, shift=0.0, wards=WARDS, numbers=False):
    """A cause, a marker of the outcome, a category and noise."""
    cause = random.normal(random.uniform(-0.5, 0.5) + shift, 1, n)
    ward = random.choice(wards, n)
    effect = 1.5 * cause + 0.5 * (ward == "B")
    if numbers:
        outcome = effect + random.normal(size=n)
        other = marker * outcome + random.normal(size=n)
    else:
        outcome = (random.random(n) < 1 / (1 + np.exp(-effect))).astype(int)
        other = marker * (2 * outcome - 1) + random.normal(size=n)
    columns = {"cause": cause, "marker": other, "ward": ward, "noise": random.normal(size=n)}
    return pd.DataFrame({**columns, "sick": outcome, "hospital": name})


def new_sites(random, draw, numbers):
    """New sites by kind; the marker of the second half is not drawn like that of training."""
    own = {"numbers": numbers}
    return {
        "like the training sites": make_site(random, "new", draw(), **own),
        "cause shifted by 2 SD": make_site(random, "new", draw(), shift=2.0, **own),
        "cause shifted by 6 SD": make_site(random, "new", draw(), shift=6.0, **own),
        "a third in an unseen ward": make_site(random, "new", draw(), wards=("A", "B", "D"), **own),
        "all in unseen wards": make_site(random, "new", draw(), wards=("D", "E"), **own),
        "marker reversed": make_site(random, "new", -0.8, **own),
    }


def count_answers(seeds, sites, changes, numbers, folder):
    """Count the answers by kind of new site, and how often the marker was flagged."""
    found, flagged = {}, 0
    for seed in seeds:
        random = np.random.default_rng(seed)
        draw = (lambda: random.uniform(0.1, 1.5)) if changes else (lambda: 0.8)  # noqa: B023
        rows = [make_site(random, f"site {k}", draw(), numbers=numbers) for k in range(sites)]
        path = folder / "rows.csv"
        pd.concat(rows).to_csv(path, index=False)
        read = read_rows([path], "sick", "hospital")
        fit = fit_table(read, FitOptions(predictors=("linear",), seed=seed))
        attach_summary(fit)
        summary = read_summary(fit.model)
        flagged += bool(summary.reversed_at)
        for kind, new in new_sites(random, draw, numbers).items():
            site = fit.model.score_new_site(new.drop(columns=["sick", "hospital"]))
            answer = answer_site(site, fit.model, summary).answer
            found.setdefault(kind, Counter())[answer] += 1
    return found, flagged


def show_answers(seeds, folder):
    for numbers in (False, True):
        target = "numeric target" if numbers else "target of two classes"
        drawn = f"{len(seeds)} tables per line, seeds {seeds[0]} to {seeds[-1]}"
        worst = 0.5 * len(seeds) ** 0.5
        print(f"*Answers, {target}: {drawn}; standard error of a count at most {worst:.1f}*\n")
        print("| training sites | marker | tables with a flag | new site | yes | with care | no |")
        print("|---|---|---|---|---|---|---|")
        for sites, changes in ((8, False), (4, False), (8, True)):
            found, flagged = count_answers(seeds, sites, changes, numbers, folder)
            marker = "changes" if changes else "the same"
            for kind, own in found.items():
                cells = " | ".join(str(own[answer]) for answer in ANSWERS)
                print(f"| {sites} | {marker} | {flagged} | {kind} | {cells} |", flush=True)
        print()


def even_slope(random, base, rate):
    """Slope at which noisy predictions lose as much as the constant `base`, on average."""
    noise = random.normal(size=200_000)
    constant = -rate * np.log(base) - (1 - rate) * np.log(1 - base)
    centre = np.log(rate / (1 - rate))

    def excess(slope):
        p = (1 / (1 + np.exp(-centre - slope * noise))).clip(1e-12, 1 - 1e-12)
        return float((-rate * np.log(p) - (1 - rate) * np.log(1 - p)).mean() - constant)

    return centre, brentq(excess, 0, 20)


def show_alarms(tables):
    """Count false alarms; the constant has the training's base rate, the site another one."""
    random = np.random.default_rng(ALARM_SEED)
    per = f"{tables:,} tables per line, ± standard error"
    print(f"*False alarms in per cent: {per} (seed {ALARM_SEED})*\n")
    print("| rows | base rate in training | here | loss | AUROC | either |")
    print("|---|---|---|---|---|---|")
    for n in (30, 50, 100, 300, 1000):
        for base, rate in ((0.5, 0.7), (0.5, 0.6), (0.3, 0.1), (0.2, 0.25)):
            centre, slope = even_slope(random, base, rate)
            alarms = np.zeros((tables, 2), bool)
            for place in range(tables):
                y = (random.random(n) < rate).astype(int)
                p = 1 / (1 + np.exp(-centre - slope * random.normal(size=n)))
                own = -np.log(np.where(y == 1, p, 1 - p))
                guess = -np.log(np.where(y == 1, base, 1 - base))
                alarms[place] = loss_p(own - guess) <= LEVEL, ranking_p(y, p) <= LEVEL
            shares = np.array([*alarms.mean(0), alarms.any(1).mean()])
            errors = np.sqrt(shares * (1 - shares) / tables)
            cells = " | ".join(
                f"{100 * share:.1f} ± {100 * error:.1f}"
                for share, error in zip(shares, errors, strict=True)
            )
            print(f"| {n} | {base:g} | {rate:g} | {cells} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("answers", "alarms"))
    parser.add_argument("--first", type=int, default=0, help="first seed of the tables")
    parser.add_argument("--count", type=int, default=20, help="tables per line")
    parser.add_argument("--tables", type=int, default=2000, help="tables per line of alarms")
    options = parser.parse_args()
    if options.what == "alarms":
        show_alarms(options.tables)
        return
    with tempfile.TemporaryDirectory() as folder:
        show_answers(range(options.first, options.first + options.count), Path(folder))


if __name__ == "__main__":
    main()

"""The price of insurance: WRI with λ fixed or chosen by regret beside ERM and plain models.

    python studies/insurance.py simulated --store FILE [--first 0] [--seeds 10] [--json]
    python studies/insurance.py public --store FILE --folder FOLDER [--only TEXT …] [--json]

Every λ of the ladder is solved, so rules are compared without fitting again.
"simulated": sites of `insured_sites.py`, trained on 2 to 12 of them, with markers that vary, are
strong or do not change, tested at new sites whose marker is unchanged, unrelated or reversed.
"public": tables of `public_tables.py` (with a note how to get them) and heart disease
(`WRI_DATA`), every site left out in turn; λ is chosen without it.
Losses are log-loss or squared error, the latter in units of the target's variance. Finished parts
are kept in the store, a file with a JSON object per line; the same command goes on where it was.
Seeds from 1000 on chose the penalty, its default weight and the ladder, seeds from 0 on are
reported.
"""

import argparse
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import wri
from insured_sites import KINDS, STRENGTHS, Design, sample_table
from public_tables import TABLES, Rows, read_public
from wri.datasets import load_heart
from wri.estimators.choice import CandidateLosses, penalty_ladder, pick
from wri.futures import FUTURES
from wri.paper.experiments.heart import split
from wri.report.intervals import interval

FIXED = 1.6  # the preset's λ
DEFAULT, PLAIN = f"WRI, λ = {FIXED:g} (default)", "logistic regression or ridge"
SHOWN = (DEFAULT, 'WRI, "auto"', "VREx")  # where there is no room for all
HEART = "heart disease, by hospital"
DESIGNS = [
    Design(task, sites, overlap, rows, marker=marker)
    for marker in STRENGTHS
    for sites, overlap, rows in (
        (4, "partial", 300),
        (4, "none", 300),
        (4, "full", 300),
        (2, "partial", 300),
        (12, "partial", 100),
        (6, "none", 200),
    )
    for task in ("classes", "numbers")
]


class Fitted(NamedTuple):
    """Models of one table by name, and the losses by which λ is chosen."""

    models: dict[str, Any]
    ladder: list[float]
    candidates: dict[str, Any] | None  # what rules choose by; None where no site can be left out


def rung_name(weight: float) -> str:
    """Name the model of one λ."""
    return f"WRI, λ = {weight:g}"


class Rung:
    """Linear predictor of one λ of a path."""

    def __init__(self, coefficients: np.ndarray, intercept: Any) -> None:
        self._coefficients, self._intercept = coefficients.ravel(), float(np.squeeze(intercept))

    def predict(self, x: np.ndarray) -> np.ndarray:
        return x @ self._coefficients + self._intercept

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        sick = expit(self.predict(x))
        return np.column_stack([1 - sick, sick])

    def score(self, x: np.ndarray, y: np.ndarray) -> float:
        return float(np.mean((self.predict(x) > 0) == y))


def fit_all(task: str, x: np.ndarray, y: np.ndarray, site: np.ndarray, seed: int) -> Fitted:
    """Fit WRI with every λ of the ladder, and the other models; rules choose afterwards."""
    kind = "Classifier" if task == "classes" else "Regressor"

    def ours(name: str, **options: Any) -> Any:
        options = {"site_spread": False, **options}
        made = getattr(wri, f"{name}{kind}")(random_state=seed, **options)
        return made.fit(x, y, groups=site)

    # of two sites none can be left out, and the path is kept only if asked for
    two = len(np.unique(site)) == 2
    searched = ours("WRI", penalty_weight="auto", futures=FUTURES, site_spread=two)
    ladder = penalty_ladder(searched)
    path = searched.penalty_path_
    rungs = zip(path.coefficients, path.intercepts, strict=True)
    models = {
        rung_name(weight): Rung(*rung)
        for weight, rung in zip(path.penalty_weights, rungs, strict=True)
    }
    models |= {"ERM": ours("ERM"), "VREx": ours("VREx")}
    classes = task == "classes"
    plain = LogisticRegression(max_iter=1000) if classes else Ridge()
    models[PLAIN] = make_pipeline(StandardScaler(), plain).fit(x, y)
    found = path.left_out
    if found is None:
        return Fitted(models, ladder, None)
    stressed = found.stressed.tolist()
    candidates = {"losses": found.losses.tolist(), "flagged": found.flagged, "stressed": stressed}
    return Fitted(models, ladder, candidates)


def losses_of(model: Any, task: str, x: np.ndarray, y: np.ndarray) -> tuple[float, float | None]:
    """Loss and, for classes, accuracy."""
    if task == "classes":
        probability = model.predict_proba(x)[np.arange(len(y)), y.astype(int)]
        return float(-np.log(probability.clip(1e-6)).mean()), float(model.score(x, y))
    return float(np.square(model.predict(x) - y).mean()), None


def measure(fitted: Fitted, test: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """A part as it is stored: what the models do at new sites, and what rules choose from."""
    return {
        "ladder": fitted.ladder,
        "candidates": fitted.candidates,
        "models": {name: test(model) for name, model in fitted.models.items()},
    }


def simulated(design: Design, seed: int) -> dict[str, Any]:
    """Losses and accuracies `[kinds, sites]` of every model."""
    training, new = sample_table(design, seed)
    x, y = (np.concatenate(parts) for parts in zip(*training, strict=True))
    site = np.repeat(np.arange(design.sites), design.rows)

    def test(model: Any) -> dict[str, Any]:
        tested = [[losses_of(model, design.task, *own) for own in new[kind]] for kind in KINDS]
        return {
            "loss": [[loss for loss, _ in kind] for kind in tested],
            "accuracy": [[accuracy for _, accuracy in kind] for kind in tested],
        }

    return measure(fit_all(design.task, x, y, site, seed), test)


def left_out(task: str, rows: Rows, label: str, seed: int) -> dict[str, Any]:
    """Loss of every model at one site that it was not trained on."""
    away = rows.site == label
    unit = 1.0 if task == "classes" else float(rows.y.var())
    fitted = fit_all(task, rows.x[~away], rows.y[~away], rows.site[~away], seed)
    return measure(
        fitted,
        lambda model: {"loss": losses_of(model, task, rows.x[away], rows.y[away])[0] / unit},
    )


def heart_left_out(hospital: str, seed: int) -> dict[str, Any]:
    """The same for a hospital of heart disease, whose gaps are filled by the others' medians."""
    known, new = split(load_heart(), hospital, seed)
    fitted = fit_all("classes", known.x, known.y, known.site, seed)
    return measure(fitted, lambda model: {"loss": losses_of(model, "classes", new.x, new.y)[0]})


def with_rules(part: dict[str, Any]) -> dict[str, Any]:
    """Models by name, among them those that rules choose; WRI's say their λ."""
    ladder, candidates = part["ladder"], part["candidates"]
    found = {name: dict(model) for name, model in part["models"].items()}
    for weight in ladder:
        found[rung_name(weight)]["penalty_weight"] = weight
    names = {"ERM": "ERM"}
    for weight in ladder[1:]:  # λ = 0 is ERM
        names[DEFAULT if weight == FIXED else rung_name(weight)] = rung_name(weight)
    for name, rule, futures in (
        ('WRI, "auto"', "regret", 3),
        ('WRI, "auto", futures like and unrelated', "regret", 2),
        ('WRI, "auto", choose="average"', "average", 1),
    ):
        names[name] = rung_name(FIXED)
        if candidates is not None:
            losses, flagged = np.array(candidates["losses"]), tuple(candidates["flagged"])
            found_losses = CandidateLosses(
                losses=losses[:, :futures],
                futures=FUTURES[:futures],
                weights=ladder,
                default=FIXED,
                flagged=flagged,
                stressed=np.array(candidates["stressed"]),
            )
            names[name] = rung_name(ladder[pick(found_losses, rule)])
    names |= {"VREx": "VREx", PLAIN: PLAIN}
    return {name: found[kept] for name, kept in names.items()}


def parts(given: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Names of the parts of the work, and how each is done."""
    if given.which == "simulated":
        for seed in range(given.first, given.first + given.seeds):
            for design in DESIGNS:
                yield f"{design.name} | {seed}", lambda d=design, s=seed: simulated(d, s)
        return
    for name in TABLES:
        if given.only and not any(text in name for text in given.only):
            continue
        rows = read_public(Path(given.folder), name)
        for label in np.unique(rows.site):
            task = TABLES[name].task
            yield f"{name} | {label}", lambda t=task, r=rows, e=label: left_out(t, r, e, 0)
    if "WRI_DATA" in os.environ and (not given.only or any(t in HEART for t in given.only)):
        for hospital in load_heart()["hospital"].unique():
            yield f"{HEART} | {hospital}", lambda h=hospital: heart_left_out(h, 0)


def work(given: argparse.Namespace) -> dict[str, Any]:
    """All parts, from the store or done now."""
    store = Path(given.store)
    store.parent.mkdir(parents=True, exist_ok=True)
    lines = store.read_text().splitlines() if store.exists() else []
    done = dict(json.loads(line) for line in lines)
    found = {}
    for name, do in parts(given):
        if name not in done:
            start = process_time()
            done[name] = do()
            with store.open("a") as file:
                file.write(json.dumps([name, done[name]]) + "\n")
            print(f"{name}: {process_time() - start:.1f} s of CPU time", file=sys.stderr)
        found[name] = with_rules(done[name])
    return found


def grouped(found: dict[str, Any]) -> dict[str, list[Any]]:
    """Parts of one design or table."""
    groups: dict[str, list[Any]] = {}
    for name, part in found.items():
        groups.setdefault(name.rsplit(" | ", 1)[0], []).append(part)
    return groups


def with_interval(mine: np.ndarray, erm: np.ndarray) -> str:
    """Mean difference in per cent of ERM's mean with its 95 % interval, paired."""
    found = interval([100 * (mine - erm) / erm.mean()])
    return f"{found.mean:+.1f} ({found.low:+.1f} to {found.high:+.1f})"


def above_erm(group: list[Any], model: str) -> dict[str, str]:
    """Loss at each kind of new site in per cent above ERM's, mean of ratios ± standard error."""
    mine, erm = (np.mean([part[name]["loss"] for part in group], -1) for name in (model, "ERM"))
    above = 100 * (mine / erm - 1)  # [n, kinds]
    error = above.std(0, ddof=1) / np.sqrt(len(above))
    pairs = zip(KINDS, above.mean(0), error, strict=True)
    return {f"{kind}: % to ERM": f"{mean:+.1f} ± {error:.1f}" for kind, mean, error in pairs}


def summary(groups: dict[str, list[Any]], which: str) -> list[dict[str, Any]]:
    """A line per design or table and model."""
    lines = []
    for title, group in groups.items():
        for name in group[0]:
            line: dict[str, Any] = {"design": title, "model": name, "n": len(group)}
            losses = np.array([part[name]["loss"] for part in group])  # [n, kinds, sites] or [n]
            erm = np.array([part["ERM"]["loss"] for part in group])
            if which == "simulated":
                for k, kind in enumerate(KINDS):
                    line[f"{kind}: mean"] = losses[:, k].mean()
                    line[f"{kind}: worst"] = losses[:, k].max(1).mean()
                line |= above_erm(group, name)
                accuracy = [part[name]["accuracy"][2] for part in group]
                if accuracy[0][0] is not None:
                    line["reversed: accuracy"] = 100 * float(np.mean(accuracy))
            else:
                line |= {"mean": losses.mean(), "worst": losses.max()}
                line["% to ERM"] = with_interval(losses, erm)
            weights = [part[name].get("penalty_weight") for part in group]
            if None not in weights:
                line["λ"] = float(np.median(weights))
            lines.append(line)
    return lines


def marker_of(design: str) -> str:
    """Key of STRENGTHS of a design or part."""
    return next((marker for marker in STRENGTHS if f"{marker} marker" in design), "varying")


def overall(found: dict[str, Any]) -> list[dict[str, Any]]:
    """A line per marker and model over all designs with sites to leave out."""
    markers: dict[str, list[Any]] = {}
    for name, part in found.items():
        if ", 2 sites" not in name:
            markers.setdefault(marker_of(name), []).append(part)
    return [
        {"design": f"{marker} marker, {len(group)} tables", "model": model, "n": len(group)}
        | above_erm(group, model)
        for marker, group in markers.items()
        for model in group[0]
    ]


def print_simulated(found: dict[str, Any], seeds: str) -> None:
    """Tables over all designs, and of each."""
    lines, loss = overall(found), "loss in % above ERM's, mean ± standard error"
    for title in dict.fromkeys(line["design"] for line in lines):
        rows = {
            line["model"]: [line[f"{kind}: % to ERM"] for kind in KINDS]
            for line in lines
            if line["design"] == title and line["model"] != "ERM"
        }
        title = f"All designs with four sites or more, {title}: {loss}, {seeds}"
        print_table(title, KINDS, rows)
    for marker in STRENGTHS:
        rows = {
            name.removesuffix(f", {marker} marker").replace("none", "no"): [
                " / ".join(above_erm(group, model).values()) for model in SHOWN
            ]
            for name, group in grouped(found).items()
            if marker_of(name) == marker
        }
        title = f"Each design, {marker} marker: {loss}, {' / '.join(KINDS)}, {seeds}"
        print_table(title, SHOWN, rows)


def print_public(lines: list[dict[str, Any]]) -> None:
    """Tables of the mean loss over the sites left out, and of the worst."""
    erm, *others = ("ERM", *SHOWN, PLAIN)  # in the order of the lines
    means: dict[str, list[str]] = {}
    worst: dict[str, list[str]] = {}
    for line in lines:
        if line["model"] in (erm, *others):
            mean = f"{line['mean']:.3f}" if line["model"] == erm else line["% to ERM"]
            means.setdefault(f"{line['design']} ({line['n']} sites)", []).append(mean)
            worst.setdefault(line["design"], []).append(f"{line['worst']:.3f}")
    title = "Mean loss over the sites left out, in % above ERM's, with its 95 % interval over sites"
    print_table(title, ("ERM: loss", *others), means)
    print_table("Loss at the worst site left out", (erm, *others), worst)


def print_table(title: str, heads: Sequence[str], rows: dict[str, list[str]]) -> None:
    """Print a table in Markdown under its title."""
    print(f"*{title}*\n\n| | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}")
    for name, cells in rows.items():
        print(re.sub(r"(?<= |\()-(?=\d)", "−", f"| {name} | {' | '.join(cells)} |"))
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", choices=("simulated", "public"))
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--folder", help="where the packages with public tables are installed")
    parser.add_argument("--only", nargs="+", help="public tables whose names hold one of these")
    parser.add_argument("--store", required=True, help="file of finished parts")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", ".*(three environments|hardly overlap|single class)")
    found = work(given)
    lines = summary(grouped(found), given.which)
    if given.json:
        lines += overall(found) if given.which == "simulated" else []
        print(json.dumps(lines, indent=1))
    elif given.which == "simulated":
        print_simulated(found, f"seeds {given.first} to {given.first + given.seeds - 1}")
    else:
        print_public(lines)


if __name__ == "__main__":
    main()

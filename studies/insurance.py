"""The price of insurance: WRI with λ fixed or chosen by regret beside ERM and plain models.

    python studies/insurance.py simulated [--first 0] [--seeds 10] [--store FILE] [--json]
    python studies/insurance.py public --folder FOLDER [--only TEXT …] [--store FILE] [--json]

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
import warnings
from collections.abc import Callable, Iterator
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
    models["logistic regression or ridge"] = make_pipeline(StandardScaler(), plain).fit(x, y)
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
    """Models by name, those that rules choose among them; each says its λ."""
    ladder, candidates = part["ladder"], part["candidates"]
    found = {name: dict(model) for name, model in part["models"].items()}
    for weight in ladder:
        found[rung_name(weight)]["penalty_weight"] = weight
    chosen = {"WRI, default λ": FIXED, "WRI, three times that": 3 * FIXED}
    for rule, futures in (("average", 1), ("regret", 3), ("regret", 2)):
        name = f"WRI, auto, {rule}" + (" without reversed" if futures == 2 else "")
        chosen[name] = FIXED
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
            chosen[name] = ladder[pick(found_losses, rule)]
    names = {name: rung_name(weight) for name, weight in chosen.items()}
    shown = {name: found[rung] for name, rung in names.items()}
    others = {name: model for name, model in found.items() if "λ =" not in name}
    return {"ERM": others.pop("ERM"), "VREx": others.pop("VREx"), **shown, **others}


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
    lines = store.read_text().splitlines() if store.exists() else []
    done = dict(json.loads(line) for line in lines)
    found = {}
    for name, do in parts(given):
        if name not in done:
            start = process_time()
            done[name] = do()
            with store.open("a") as file:
                file.write(json.dumps([name, done[name]]) + "\n")
            print(f"{name}: {process_time() - start:.0f} s of CPU time", flush=True)
        found[name] = with_rules(done[name])
    return found


def grouped(found: dict[str, Any]) -> dict[str, list[Any]]:
    """Parts of one design or table."""
    groups: dict[str, list[Any]] = {}
    for name, part in found.items():
        groups.setdefault(name.rsplit(" | ", 1)[0], []).append(part)
    return groups


def relative_to_erm(mine: np.ndarray, erm: np.ndarray) -> str:
    """Mean difference in per cent of ERM's mean with its 95 % interval, paired."""
    if len(mine) < 2:
        return f"{100 * (mine.mean() / erm.mean() - 1):+.1f}"
    found = interval([100 * (mine - erm) / erm.mean()])
    return f"{found.mean:+.1f} ({found.low:+.1f} to {found.high:+.1f})"


def summary(found: dict[str, Any], which: str) -> list[dict[str, Any]]:
    """A line per design or table and model."""
    lines = []
    for title, group in grouped(found).items():
        for name in group[0]:
            line: dict[str, Any] = {"design": title, "model": name, "n": len(group)}
            losses = np.array([part[name]["loss"] for part in group])  # [n, kinds, sites] or [n]
            erm = np.array([part["ERM"]["loss"] for part in group])
            if which == "simulated":
                for k, kind in enumerate(KINDS):
                    line[f"{kind}: mean"] = losses[:, k].mean()
                    line[f"{kind}: worst"] = losses[:, k].max(1).mean()
                    line[f"{kind}: % to ERM"] = relative_to_erm(
                        losses[:, k].mean(1), erm[:, k].mean(1)
                    )
                accuracy = [part[name]["accuracy"][2] for part in group]
                if accuracy[0][0] is not None:
                    line["reversed: accuracy"] = 100 * float(np.mean(accuracy))
            else:
                line |= {"mean": losses.mean(), "worst": losses.max()}
                line["% to ERM"] = relative_to_erm(losses, erm)
            weights = [part[name].get("penalty_weight") for part in group]
            if None not in weights:
                line["λ"] = float(np.median(weights))
            lines.append(line)
    return lines


def overall(found: dict[str, Any], marker: str) -> list[dict[str, Any]]:
    """A line per model over all designs with sites to leave out: loss in per cent above ERM's."""
    here = "marker" if marker == "varying" else f"{marker} marker"
    usable = [
        part
        for name, part in found.items()
        if ", 2 sites" not in name and (here in name) != (marker == "varying")
    ]
    lines = []
    if not usable:
        return lines
    for model in usable[0]:
        title = f"all designs with four sites or more, {marker} marker"
        line: dict[str, Any] = {"design": title, "model": model}
        for k, kind in enumerate(KINDS):
            ratios = [
                np.mean(part[model]["loss"][k]) / np.mean(part["ERM"]["loss"][k]) for part in usable
            ]
            above = 100 * (np.array(ratios) - 1)
            error = above.std(ddof=1) / np.sqrt(len(above))
            line[f"{kind}: % to ERM"] = f"{above.mean():+.1f} ± {error:.1f}"
        lines.append(line | {"n": len(usable)})
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", choices=("simulated", "public"))
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--folder", help="where the packages with public tables are installed")
    parser.add_argument("--only", nargs="+", help="public tables whose names hold one of these")
    parser.add_argument("--store", help="file of finished parts; insurance-WHICH.jsonl")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    given = parser.parse_args()
    given.store = given.store or f"insurance-{given.which}.jsonl"
    warnings.filterwarnings("ignore", ".*(three environments|hardly overlap|single class)")
    found = work(given)
    lines = summary(found, given.which)
    if given.which == "simulated":
        lines += [line for marker in STRENGTHS for line in overall(found, marker)]
    if given.json:
        print(json.dumps(lines, indent=1))
        return
    for title in dict.fromkeys(line["design"] for line in lines):
        own = [line for line in lines if line["design"] == title]
        names = [name for name in own[0] if name != "design"]
        names = list(dict.fromkeys([*names, *(n for line in own for n in line if n != "design")]))
        print(f"\n*{title}*\n\n| {' | '.join(names)} |\n|{'---|' * len(names)}")
        for line in own:
            cells = [line.get(name, "") for name in names]
            shown = [f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in cells]
            print(f"| {' | '.join(shown)} |")


if __name__ == "__main__":
    main()

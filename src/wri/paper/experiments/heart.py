"""Heart disease (UCI), each of four hospitals held out in turn: wri's estimators and plain models.

    for each hospital h:  fit on the other three ─► predict h's patients, who chose nothing

Settings are the defaults, or chosen among four by the log-loss on each *training* hospital left out
in turn, the same number for all models. A seed draws 80 % of each training hospital's patients and
the networks' initial weights, so the spread shows how much a result depends on the patients in the
sample; it does not include hospitals beyond these four.

Missing values are filled with the training hospitals' medians or most frequent categories. `slope`,
`ca` and `thal`, which are rare outside Cleveland, are left out, and so are indicators of missing
values, because they reveal the hospital. No rows are held back for verdicts, so all models see the
same rows.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from wri import estimators
from wri.datasets import load_heart
from wri.datasets.environments import SiteRows
from wri.estimators.base import EnvironmentEstimator
from wri.objectives import OBJECTIVES
from wri.paper.experiments import ExperimentTask
from wri.paper.result import Result, compare_paired, make_line

NUMBERS = ["age", "trestbps", "chol", "thalach", "oldpeak"]
CATEGORIES = ["sex", "cp", "fbs", "restecg", "exang"]
NETWORK = (32, 16)
SAME_ROWS = {"validation_fraction": 0.0, "site_spread": False}  # all models see the same rows
DRAWN = 0.8  # of every training hospital's patients
MEAN = "mean of four"
MEASURES = ("log-loss", "AUROC", "balanced accuracy")


Settings = Mapping[str, Sequence[float]] | None
"""Settings that an estimator of scikit-learn chooses from."""


def _around_default(objective: str) -> list[float]:
    """Return λ from a hundredth of the default for tables to ten times it."""
    known = {each.name: each for each in OBJECTIVES[objective].hyperparameters()}
    centre = known["penalty_weight"].setting("table").resolve(None)
    return [centre * factor for factor in (0.01, 0.1, 1.0, 10.0)]


def _networks() -> dict[str, tuple[Any, Settings]]:
    """Return wri's estimators, with defaults and tuned."""
    tuned = {
        "ERM": (estimators.ERMClassifier, "weight_decay", [1e-4, 1e-3, 1e-2, 1e-1]),
        "IRM": (estimators.IRMClassifier, "penalty_weight", _around_default("irm")),
        "VREx": (estimators.VRExClassifier, "penalty_weight", _around_default("vrex")),
        "GroupDRO": (estimators.GroupDROClassifier, "eta", [1e-3, 1e-2, 1e-1, 1.0]),
        "WRI": (estimators.WRIClassifier, "penalty_weight", _around_default("wri")),
    }
    ways = {}
    for name, (kind, parameter, values) in tuned.items():
        candidates = [{parameter: value} for value in values]
        tuning = {**SAME_ROWS, "candidates": candidates, "choose": "average"}
        ways[name] = kind(**SAME_ROWS)
        ways[f"{name}, tuned"] = kind(**tuning)
        ways[f"{name}, network, tuned"] = kind(**tuning, hidden=NETWORK)
    ways["WRI, λ chosen"] = estimators.WRIClassifier(**SAME_ROWS, penalty_weight="auto")
    return {name: (estimator, None) for name, estimator in ways.items()}


def _plain() -> dict[str, tuple[Any, Settings]]:
    """Return scikit-learn's own estimators."""
    logistic, boosting = LogisticRegression(max_iter=2000), HistGradientBoostingClassifier()
    return {
        "logistic regression": (logistic, None),
        "logistic regression, tuned": (logistic, {"C": [0.01, 0.1, 1.0, 10.0]}),
        "gradient boosting": (boosting, None),
        "gradient boosting, tuned": (boosting, {"learning_rate": [0.01, 0.03, 0.1, 0.3]}),
    }


Scores = dict[tuple[str, str, str], list[float]]
"""By measure, line and held-out hospital: a value for each seed."""


def run(task: ExperimentTask) -> list[Result]:
    table = load_heart()
    ways = {**_plain(), **_networks()}
    if not task.full:
        ways = {name: way for name, way in ways.items() if "tuned" not in name}
    hospitals = table["hospital"].unique().tolist()
    seeds = task.seeds(10, 2)
    scores: Scores = {}
    done, every = 0, len(seeds) * len(hospitals) * len(ways)
    for seed in seeds:
        for hospital in hospitals:
            known, new = split(table, hospital, seed)
            probabilities = {}
            for name, (estimator, settings) in ways.items():
                probabilities[name] = predicted(estimator, known, new, seed, settings)
                done += 1
                task.progress(done, every)
            prevalence = pd.Series(known.y).groupby(known.site).mean().mean()  # hospitals equal
            probabilities["always the same"] = np.full(len(new.y), prevalence)
            for name, probability in probabilities.items():
                for measure, value in measured(new.y, probability).items():
                    scores.setdefault((measure, name, hospital), []).append(value)

    rows = []
    names = list(dict.fromkeys(name for _, name, _ in scores))
    for measure in MEASURES:
        for name in names:
            each = [np.array(scores[measure, name, hospital]) for hospital in hospitals]
            shown = dict(zip(hospitals, each, strict=True)) | {MEAN: np.mean(each, 0)}
            rows += make_line(name, shown, measure)
    notes = [
        f"Seeds {seeds[0]} to {seeds[-1]}: {DRAWN:.0%} of each training hospital's patients. "
        "tuned: the best of four settings by leaving one training hospital out.",
        "always the same: the training hospitals' mean prevalence, predicted for every patient.",
        "Intervals are over draws of training patients; test patients and hospitals are the same "
        "in all of them.",
        *_against(scores, names, hospitals),
    ]
    return [task.make_result(rows, notes)]


def split(table: pd.DataFrame, hospital: str, seed: int) -> tuple[SiteRows, SiteRows]:
    """Return some patients of the other hospitals, and all of this one in their units."""
    away = table["hospital"] == hospital
    drawn = table[~away].groupby("hospital", sort=False).sample(frac=DRAWN, random_state=seed)
    one_hot = OneHotEncoder(drop="if_binary", handle_unknown="ignore", sparse_output=False)
    prepare = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), NUMBERS),
        (make_pipeline(SimpleImputer(strategy="most_frequent"), one_hot), CATEGORIES),
    )
    with warnings.catch_warnings():  # a category that only the new hospital has
        warnings.filterwarnings("ignore", "Found unknown categories")
        inputs = prepare.fit_transform(drawn), prepare.transform(table[away])
    known, new = (
        SiteRows(x, rows["disease"].to_numpy(), rows["hospital"].to_numpy())
        for x, rows in zip(inputs, (drawn, table[away]), strict=True)
    )
    return known, new


def predicted(
    estimator: Any, known: SiteRows, new: SiteRows, seed: int, settings: Settings = None
) -> np.ndarray:
    """Return the probability of disease of the new hospital's patients."""
    model = estimator.set_params(random_state=seed)
    if settings is not None:
        model = GridSearchCV(model, settings, scoring="neg_log_loss", cv=LeaveOneGroupOut())
    sites = {"groups": known.site} if isinstance(model, EnvironmentEstimator | GridSearchCV) else {}
    model.fit(known.x, known.y, **sites)
    probability: np.ndarray = model.predict_proba(new.x)[:, 1]
    return probability


def measured(y: np.ndarray, probability: np.ndarray) -> dict[str, float]:
    return {
        "log-loss": float(log_loss(y, probability.clip(1e-6, 1 - 1e-6))),
        "AUROC": float(roc_auc_score(y, probability)),
        "balanced accuracy": float(balanced_accuracy_score(y, probability > 0.5)),
    }


def _against(scores: Scores, names: Sequence[str], hospitals: Sequence[str]) -> list[str]:
    """Compare WRI's log-loss with each other model, paired by seed, hospitals equal."""

    def means(name: str) -> np.ndarray:
        return np.mean([scores["log-loss", name, hospital] for hospital in hospitals], 0)

    notes = []
    for ours in (name for name in names if name.startswith("WRI")):
        kind = ours.removeprefix("WRI")  # "", ", tuned" or ", network, tuned"
        rivals = [f"{other}{kind}" for other in ("ERM", "IRM", "VREx", "GroupDRO")]
        tuned = ", tuned" if kind else ""
        rivals += [f"{plain}{tuned}" for plain in ("logistic regression", "gradient boosting")]
        against = {rival: [means(rival)] for rival in rivals if rival in names}
        found = compare_paired([means(ours)], against, 3)
        notes.append(f"{ours}, log-loss minus that of {found}. Negative is better.")
    return notes

"""Last sections of a fit's report: verdicts with their thresholds, and the model card."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from platform import python_version
from typing import Any

import numpy as np
import sklearn
import torch

from wri import __version__
from wri.number_text import write_percent
from wri.report.blocks import BulletList, CommandBlock, FactList, PageTable, Section
from wri.tables.fitting import TableFit

VERDICTS = ("supported", "rare", "outside")


@dataclass(frozen=True, kw_only=True)
class FitSource:
    """Origin of the rows of a fit."""

    files: Sequence[str]
    digests: Sequence[str]
    target: str
    environment: str
    command: str


def describe_versions() -> str:
    """Return the versions of the packages that made a page."""
    return (
        f"wri {__version__}, Python {python_version()}, PyTorch {torch.__version__}, "
        f"scikit-learn {sklearn.__version__}"
    )


def verdict_section(fit: TableFit) -> Section:
    """Build the section on verdicts."""
    model, found = fit.estimator, fit.model.assess(fit.data.X)
    rows = []
    for name in fit.environments:
        own = found.verdicts[fit.data.groups == name]
        shares = [f"{100 * np.mean(own == verdict):.1f} %" for verdict in VERDICTS]
        rows.append([name, *shares])
    rare, outside = model.evidence_.usual
    unsure = "with a class less certain than in others, or " if fit.classes else ""
    facts = [
        ("Rare", f"{write_percent(rare)} of held-out rows, {unsure}far from training"),
        ("Outside", f"{write_percent(outside)} of held-out rows, farther from training"),
        (
            "Distance sees",
            {
                "outputs": "the predictor's outputs",
                "phi": "its last hidden layer",
                "x": "the columns",
            }[model.evidence_on_],
        ),
    ]
    return Section(
        title="Rare regions and thresholds of the verdict",
        blocks=[
            "Each prediction has a verdict: supported, rare or outside the evidence. Columns that "
            "the model ignores do not make a row rare.",
            FactList(facts),
            PageTable(
                caption="Verdicts on the training rows",
                columns=["site", *VERDICTS],
                rows=rows,
            ),
        ],
    )


def describe_predictor(model: Any) -> tuple[str, str]:
    """Describe the predictor: hidden layers, or trees."""
    trees = getattr(model.spec_, "trees", None)
    if trees is None:
        widths = ", ".join(map(str, model.spec_.hidden or ()))
        return "Hidden layers", widths or "none: linear"
    forests = len(model.trees_.boosters)
    return "Trees", (
        f"{forests} × {model.n_steps_} rounds of {trees.leaves} leaves, at least "
        f"{trees.least_rows} rows per leaf, learning rate {trees.learning_rate:g}"
    )


def card_section(fit: TableFit, source: FitSource, day: date) -> Section:
    """Build the model card."""
    weight = fit.estimator.hyper_.get("penalty_weight")
    facts = [
        ("Model", f"{fit.kept.label}, {type(fit.estimator).__name__}"),
        describe_predictor(fit.estimator),
        ("Penalty weight", "none" if weight is None else f"{weight:g}"),
        (
            "Rule",
            "least worst regret over the futures" if fit.options.keep is None else "--keep",
        ),
        ("Trained", f"{day.isoformat()}, {fit.seconds:.0f} s, seed {fit.options.seed}"),
        ("Versions", describe_versions()),
        *(
            (f"SHA-256 of {file}", digest)
            for file, digest in zip(source.files, source.digests, strict=False)
        ),
    ]
    limits = [
        "It predicts what was measured in the past, not the effect of an intervention.",
        "Intervals assume that a new site differs from these sites as they differ from each other.",
        "A supported row can still be predicted wrongly: the verdict means that training had rows "
        "like it, not that the relation to the target is the same at the new site.",
        "The model folder holds predictions and losses of held-out rows, and so their outcomes.",
    ]
    return Section(
        title="Model card",
        blocks=[FactList(facts), BulletList(limits), CommandBlock(source.command, "Made by")],
    )

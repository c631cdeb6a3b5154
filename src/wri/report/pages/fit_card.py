"""Sections of a fit's report on the model: columns used, thresholds, training rows, card."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from platform import python_version
from typing import Any

import numpy as np
import sklearn
import torch

from wri import __version__
from wri.estimators.pipeline import last_step
from wri.evaluation.candidates import WITHOUT
from wri.evaluation.fitting import TableFit, encode, preprocessing_of
from wri.evaluation.folder_fit import PictureFit
from wri.features.picture_files import read_picture
from wri.number_text import write_number, write_percent, write_share
from wri.report.blocks import (
    Block,
    FactList,
    Notice,
    PageTable,
    Section,
    Thumbnail,
    ThumbnailGallery,
    make_card,
    make_thumbnail,
)

VERDICTS = ("supported", "rare", "outside")
SEEN = {"outputs": "the predictor's outputs", "phi": "its last hidden layer", "x": "the columns"}
MOST_EFFECTS = 15  # columns in the table of effects
MOST_COLUMNS = 200  # in the table of columns
RAREST = 12  # pictures that are shown
LIMITS = (
    "It predicts what was measured in the past, not the effect of an intervention.",
    "Intervals assume that a new site differs from these sites as they differ from each other.",
    "A supported row can still be predicted wrongly: the verdict means that training had rows "
    "like it, not that the relation to the target is the same at the new site.",
    "The model folder holds predictions and losses of held-out rows, and so their outcomes.",
)


def describe_versions() -> str:
    """Return the versions of the packages that made a page."""
    return (
        f"wri {__version__}, Python {python_version()}, PyTorch {torch.__version__}, "
        f"scikit-learn {sklearn.__version__}"
    )


def coefficient_section(fit: TableFit) -> Section:
    """Build the section on columns that linear models use: coefficient × standard deviation.

    ERM beside WRI: what WRI uses less is what it insures against. The section is empty where the
    kept model is not linear or has several scores.
    """
    title, effects = "Which columns the models use", {}
    labels = {each.name: each.label for each in fit.options.candidates()}
    for name, model in fit.models.items():
        found = _coefficients(last_step(model))
        if found is not None:
            x = encode(fit.rows, preprocessing_of(model)).X
            label = labels[name] if name != WITHOUT else "ERM without flagged columns"
            effects[label] = dict(zip(x, found * x.to_numpy().std(0), strict=True))
    if not effects:
        return Section(title=title, blocks=[])
    every = dict.fromkeys(name for own in effects.values() for name in own)
    largest = {name: max(abs(own.get(name, 0.0)) for own in effects.values()) for name in every}
    order = sorted(every, key=lambda name: -largest[name])[:MOST_EFFECTS]
    unit = f"log-odds of {fit.estimator.classes_[-1]}" if fit.classes else fit.rows.target
    rest = len(every) - len(order)
    return Section(
        title=title,
        blocks=[
            f"Change of the prediction ({unit}) when a column rises by its standard deviation and "
            "the others stay.",
            PageTable(
                caption="Effect per standard deviation, largest first",
                columns=["column", *effects],
                rows=[[name, *_effect_cells(name, effects)] for name in order],
                note=f"{rest} columns with smaller effects are not shown." if rest else "",
            ),
        ],
    )


def _effect_cells(name: str, effects: Mapping[str, Mapping[str, float]]) -> list[str]:
    found = [own.get(name) for own in effects.values()]
    return ["–" if effect is None else write_number(effect, sign=True) for effect in found]


def _coefficients(estimator: Any) -> np.ndarray | None:  # [D]
    """Read the coefficients of one score; None where there are none, or several scores."""
    found = getattr(estimator, "coef_", None)
    if found is None:
        return None
    found = np.atleast_2d(found)
    return found[0] if len(found) == 1 else None


def verdict_section(fit: TableFit) -> Section:
    """Build the section on verdicts."""
    model, found = fit.estimator, fit.model.assess(fit.rows.X)
    rows = []
    for name in fit.rows.environments:
        own = found.verdicts[fit.rows.groups == name]
        shares = [write_share(np.mean(own == verdict)) for verdict in VERDICTS]
        rows.append([name, *shares])
    rare, outside = model.evidence_.usual
    unsure = "with a class less certain than in others, or " if fit.classes else ""
    facts = [
        ("Rare", f"{write_percent(rare)} of held-out rows, {unsure}far from training"),
        ("Outside", f"{write_percent(outside)} of held-out rows, farther from training"),
        ("Distance sees", SEEN[model.evidence_on_]),
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


def training_section(fit: TableFit, files: Sequence[str]) -> Section:
    """Build the section on the training rows."""
    rows = fit.rows
    targets = {name: _describe_targets(fit, name) for name in rows.environments}
    blocks: list[Block] = [
        FactList(
            [
                ("Files", "; ".join(files)),
                ("Target", f"{rows.target}, {_describe_target(fit)}"),
                ("Sites", f"column {rows.environment}, {len(rows.environments)} of them"),
            ]
        ),
        PageTable(
            caption="Rows by site",
            columns=["site", "rows", *next(iter(targets.values()))],
            rows=[
                [name, f"{n:,}", *targets[name].values()] for name, n in rows.environments.items()
            ],
        ),
    ]
    if fit.schema is not None:
        columns = fit.schema.columns
        shown = columns[:MOST_COLUMNS]
        note = "" if len(shown) == len(columns) else f"{len(columns) - len(shown)} more columns."
        blocks.append(
            PageTable(
                caption="Columns",
                columns=["column", "kind", "missing", "categories"],
                rows=[
                    [c.name, c.kind, f"{c.missing:,}", ", ".join(c.categories[:8])] for c in shown
                ],
                note=note,
            )
        )
    return Section(title="What it was trained on", blocks=blocks)


def _describe_target(fit: TableFit) -> str:
    if not fit.classes:
        return f"a number from {fit.rows.y.min():g} to {fit.rows.y.max():g}"
    classes = [str(each) for each in fit.estimator.classes_]
    shown = ", ".join(classes[:6]) + (" …" if len(classes) > 6 else "")
    return f"one of {len(classes)} classes ({shown})"


def _describe_targets(fit: TableFit, name: str) -> dict[str, str]:
    """Return the cells of a site in the table of rows, by column."""
    own = fit.rows.y[fit.rows.groups == name]
    if not fit.classes:
        mean, deviation = write_number(own.mean(), 4), write_number(own.std(), 4)
        return {"mean of the target": mean, "standard deviation": deviation}
    classes = fit.estimator.classes_
    if len(classes) == 2:
        return {f"share of {classes[-1]}": write_share(np.mean(own == classes[-1]))}
    return {"classes": str(len(np.unique(own)))}


def picture_sections(found: PictureFit) -> list[Section]:
    """Build the report section with the rarest pictures."""
    rows = found.fit.rows
    assessed = found.fit.model.assess(rows.X)
    paths = [found.folder.paths[k] for k in found.kept]
    order = np.argsort(assessed.scores)[:RAREST]
    thumbnails = [
        Thumbnail(
            make_thumbnail(read_picture(Path(paths[k]).read_bytes())),
            f"{rows.y[k]}, {rows.groups[k]}, {Path(paths[k]).name}",
            f"{rows.groups[k]}, {rows.y[k]}: predicted "
            f"{assessed.predictions[k]}, {assessed.verdicts[k]}",
        )
        for k in order
    ]
    note = Notice(
        "An unusual picture that the model is sure of is called supported. Check a new kind of "
        "picture on some labelled ones.",
        "note",
    )
    shown = ThumbnailGallery("Training pictures that are rarest", thumbnails)
    return [Section(title="The rarest pictures", blocks=[note, shown])]


def _describe_predictor(model: Any) -> tuple[str, str]:
    trees = getattr(model.spec_, "trees", None)
    if trees is None:
        widths = ", ".join(map(str, model.spec_.hidden or ()))
        return "Hidden layers", widths or "none: linear"
    forests = len(model.trees_.boosters)
    return "Trees", (
        f"{forests} × {model.n_steps_} rounds of {trees.leaves} leaves, at least "
        f"{trees.least_rows} rows per leaf, learning rate {trees.learning_rate:g}"
    )


def card_section(fit: TableFit, files: Mapping[str, str], command: str, day: date) -> Section:
    """Build the model card."""
    weight = fit.estimator.hyper_.get("penalty_weight")
    facts = [
        ("Model", f"{fit.kept.label}, {type(fit.estimator).__name__}"),
        _describe_predictor(fit.estimator),
        ("Penalty weight", "none" if weight is None else f"{weight:g}"),
        ("Rule", "--keep" if fit.options.keep else "least worst regret over the futures"),
        ("Trained", f"{day.isoformat()}, {fit.seconds:.0f} s, seed {fit.options.seed}"),
        ("Versions", describe_versions()),
        *((f"SHA-256 of {file}", digest) for file, digest in files.items()),
    ]
    return make_card("Model card", facts, LIMITS, command)

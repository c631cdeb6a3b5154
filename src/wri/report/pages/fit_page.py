"""Report page of a fit, from the training rows to the command that makes it again."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wri.diagnosis.inputs import listed
from wri.estimators.pipeline import last_step
from wri.evaluation.candidates import WITHOUT
from wri.evaluation.changes import ask_overlap
from wri.evaluation.fitting import TableFit, encode, preprocessing_of
from wri.evaluation.folder_fit import PictureFit
from wri.evaluation.held_out import HeldOutScores, SiteInterval
from wri.evaluation.plots import plot_risk_coverage, plot_scores, risk_of
from wri.evaluation.verdict import name_candidate, when
from wri.features.backbones import read_picture
from wri.number_text import write_number, write_percent, write_share
from wri.ood.evidence import VERDICTS
from wri.report.page import (
    Block,
    Notice,
    Page,
    PageCell,
    PagePicture,
    PageTable,
    Section,
    ThumbnailGallery,
    make_card,
    make_thumbnail,
)
from wri.report.pages.diagnosis_page import answer_blocks, slope_table
from wri.report.style import figure_of

SEEN = {"outputs": "the predictor's outputs", "phi": "its last hidden layer", "x": "the columns"}
MOST_EFFECTS = 15  # columns in the table of effects
MOST_COLUMNS = 200  # in the table of columns
MOST_COMPARED = 5_000  # rows whose overlap is shown
RAREST = 12  # pictures that are shown
LIMITS = (
    "It predicts what was measured in the past, not the effect of an intervention.",
    "Intervals assume that a new site differs from these sites as much as they differ from each "
    "other.",
    "A supported row can still be predicted wrongly: the verdict means that training had rows "
    "like it, not that the relation to the target is the same at the new site.",
    "The model folder holds predictions and losses of held-out rows. Their outcomes can be "
    "computed from these.",
)


def build_fit_page(
    fit: TableFit,
    files: Mapping[str, str],
    command: str,
    more: Sequence[Section] = (),
) -> Page:
    """Build the report page of a fit.

    `files` are digests by description. The sections `more` come before the model card.
    """
    held = fit.held_out
    sections = [
        *([] if held is None else [_held_out(fit, held)]),
        _changes(fit),
        coefficient_section(fit),
        *([] if held is None else [_coverage(fit, held)]),
        _overlap(fit),
        _verdicts(fit),
        _training(fit, [*files]),
        *more,
        _card(fit, files, command),
    ]
    verdict = fit.verdict
    return Page(
        title=f"Will '{fit.rows.target}' hold at a new {fit.word.one}?",
        lead=[verdict.sentence, *verdict.advice, verdict.kept],
        opening=[] if held is None else _futures(fit, held),
        notices=[Notice(text) for text in fit.warnings],
        sections=[section for section in sections if section.blocks],
    )


def _futures(fit: TableFit, held: HeldOutScores) -> list[Block]:
    """Build the table of models against futures, and the insurance curve."""
    table = future_table(fit)
    if not held.columns:
        return [table]
    kept = next(row for row in table.rows if str(row[0]).endswith("(kept)"))
    each = zip(table.columns[1:], kept[1:], strict=True)
    told = ", ".join(f"{head} {value}" for head, value in each)
    curve = PagePicture(
        figure=figure_of(fit.plot_insurance()),
        alternative=f"{kept[0]}: {held.loss_name} {told}.",
        caption=f"Further left is better at {fit.word.many} like these. "
        "Further down is better if the relation changes.",
    )
    return [table, curve]


def future_table(fit: TableFit) -> PageTable:
    """Build the table of models against futures."""
    held, word = fit.held_out, fit.word
    assert held is not None
    shown = [c for c in held.candidates if c.name != WITHOUT or held.columns]
    values = {c.name: [held.losses(c.name, f).mean() for f in held.futures] for c in shown}
    digits = int(np.clip(2 - np.floor(np.log10(max(min(values[shown[0].name]), 1e-9))), 0, 6))
    lines = []
    for each in shown:
        label = name_candidate(each, held.columns, held.classes)
        label += " (kept)" if each.name == fit.kept.name else ""
        lines.append([label, *(f"{value:,.{digits}f}" for value in values[each.name])])
    return PageTable(
        caption="Loss by model and future",
        columns=[f"loss ({held.loss_name})", *(when(f, held.columns, word) for f in held.futures)],
        rows=lines,
        note=f"Mean {held.loss_name} over {len(held.environments)} {word.many}, each left out in "
        f"turn. {fit.verdict.untried}",
    )


def _compared(fit: TableFit, held: HeldOutScores) -> dict[str, str]:
    """Return the labels of the kept model and of its ERM, by name."""
    both = fit.options.compared(fit.kept)
    return {each.name: name_candidate(each, held.columns, held.classes) for each in both}


def _held_out(fit: TableFit, held: HeldOutScores) -> Section:
    word, kept, models = fit.word, fit.kept.name, _compared(fit, held)
    worst, ahead = min(held.of(kept), key=lambda each: each.score), held.new_site(kept)
    return Section(
        title=f"How well it holds at a {word.one} that it has not seen",
        blocks=[
            f"Each {word.one} was held out in turn: preprocessing and models were fitted on all "
            f"other {word.many} and scored on it. The {held.measure} of {models[kept]} was "
            f"{_show(held, ahead.value)} on average. For a new {word.one} expect "
            f"{_show_interval(held, ahead)} (95 % interval, if it differs from these as much as "
            "they differ from each other).",
            PagePicture(
                figure=plot_scores(held, models, kept),
                alternative=f"The worst {held.measure} of {models[kept]} is "
                f"{_show(held, worst.score)}, at {worst.environment}.",
                caption=f"{held.measure.capitalize()} at {word.many} held out",
            ),
            _score_table(held, models, word.one),
            "The kept model was chosen by the same losses, so its score is slightly too good.",
        ],
    )


def _score_table(held: HeldOutScores, models: Mapping[str, str], site: str) -> PageTable:
    """Build the table of scores and losses per site, with means and a new site's interval."""
    rows: list[list[str | PageCell]] = []
    for k, name in enumerate(held.environments):
        found = [held.of(model)[k] for model in models]
        losses = [write_number(each.loss, 4) for each in found]
        least = write_number(min(each.loss for each in found), 4)
        best = [loss == least and losses.count(least) == 1 for loss in losses]
        scores = [_score_cell(held, SiteInterval(e.score, e.low, e.high)) for e in found]
        cells = [PageCell(loss, best=bold) for loss, bold in zip(losses, best, strict=True)]
        rows.append([name, f"{found[0].n:,}", *scores, *cells])
    scores = [_score_cell(held, held.mean(name)) for name in models]
    means = [held.mean(name, "loss") for name in models]
    cells = [PageCell(write_number(each.value, 4), _show_ends(each)) for each in means]
    rows.append([f"mean of {len(rows)}", "", *scores, *cells])
    ahead = [_show_interval(held, held.new_site(name)) for name in models]
    ends = [_show_ends(held.new_site(name, "loss")) for name in models]
    rows.append([f"a new {site}, 95 %", "", *ahead, *ends])
    kinds, labels = (held.measure, held.loss_name), models.values()
    return PageTable(
        caption=f"Scores at each {site} held out",
        columns=[site, "rows", *(f"{kind}, {label}" for kind in kinds for label in labels)],
        rows=rows,
        summary=2,
        note="The 95 % interval of a site covers chance in its rows. The 95 % interval of the mean "
        "covers the spread between sites. Bold: the smallest loss at a site.",
    )


def _show(held: HeldOutScores, value: float) -> str:
    """Format a score: per cent of right classes, or R²."""
    if not np.isfinite(value):
        return "–"
    return write_share(value) if held.classes else f"{value:.3f}"


def _show_interval(held: HeldOutScores, found: SiteInterval) -> str:
    return f"{_show(held, found.low)} to {_show(held, found.high)}"


def _score_cell(held: HeldOutScores, found: SiteInterval) -> PageCell:
    return PageCell(_show(held, found.value), _show_interval(held, found))


def _show_ends(found: SiteInterval) -> str:
    return f"{write_number(found.low)} to {write_number(found.high)}"


def _coverage(fit: TableFit, held: HeldOutScores) -> Section:
    kept, models = fit.kept.name, _compared(fit, held)
    risk, verdicts = risk_of(held, kept), held.rows[kept].verdicts
    rows = []
    for verdict in VERDICTS:
        own = verdicts == verdict
        lost = write_number(risk[own].mean()) if own.any() else "–"
        rows.append([verdict, f"{own.sum():,}", write_share(own.mean()), lost])
    name = "share of errors" if held.classes else "mean squared error"
    said = ", ".join(f"{row[0]} {row[3]}" for row in rows)
    return Section(
        title="Risk and coverage",
        blocks=[
            "Rows of sites held out, ordered by how common they are among the training sites. If "
            "the curve rises to the right, the model is worse on rare rows, and setting them aside "
            "helps. If it falls, the model is better on rare rows: they are extreme, but clear "
            "cases.",
            PagePicture(
                figure=plot_risk_coverage(held, models),
                alternative=f"{name} by verdict at sites held out: {said}.",
                caption="Risk by coverage at sites held out",
            ),
            PageTable(
                caption=f"Verdicts of {models[kept]} at sites held out",
                columns=["verdict", "rows", "share", name],
                rows=rows,
            ),
        ],
    )


def _overlap(fit: TableFit) -> Section:
    """Build the section on overlap, of a sample if there are many rows; empty for pictures."""
    blocks: list[Block] = []
    if fit.schema is not None:
        rows = fit.rows.sample(MOST_COMPARED, fit.options.seed)
        blocks += answer_blocks(ask_overlap(encode(rows, preprocessing_of(fit.model))))
        if len(rows.y) < len(fit.rows.y):
            blocks.insert(1, f"From {len(rows.y):,} rows drawn at random.")
    return Section(title="What the sites have in common", blocks=blocks)


def _changes(fit: TableFit) -> Section:
    """Build the section on slopes by site."""
    blocks: list[Block] = []
    if fit.slopes is not None:
        figure, text = fit.slopes.plot(), fit.verdict.sentence
        blocks.append(PagePicture(figure=figure, alternative=text, caption="Slopes by site"))
        blocks.append(slope_table(fit.slopes, fit.changes))
    return Section(title=f"Columns whose relation to '{fit.rows.target}' changes", blocks=blocks)


def coefficient_section(fit: TableFit) -> Section:
    """Build the section on columns that linear models use: coefficient × standard deviation.

    ERM beside WRI: what WRI uses less is what it insures against. The section is empty where the
    kept model is not linear or has several scores.
    """
    title, effects = "Which columns the models use", {}
    labels = {each.name: each.label for each in fit.options.candidates()}
    labels[WITHOUT] = "ERM without flagged columns"
    for name, model in fit.models.items():
        found = np.atleast_2d(getattr(last_step(model), "coef_", np.empty((0, 0))))  # [C, D]
        if len(found) == 1:
            x = encode(fit.rows, preprocessing_of(model)).X
            effect = found[0] * x.to_numpy().std(0)
            effects[labels[name]] = pd.Series(dict(zip(x, effect, strict=True)))
    if not effects:
        return Section(title=title, blocks=[])
    table = pd.DataFrame(effects)
    order = table.abs().max(axis=1).sort_values(ascending=False, kind="stable").index
    shown = table.loc[order[:MOST_EFFECTS]]
    unit = f"log-odds of {fit.estimator.classes_[-1]}" if fit.classes else fit.rows.target
    rest = len(table) - len(shown)
    return Section(
        title=title,
        blocks=[
            f"Change of the prediction ({unit}) when a column rises by its standard deviation and "
            "the others stay.",
            PageTable(
                caption="Effect per standard deviation, largest first",
                columns=["column", *effects],
                rows=[
                    [name, *("–" if np.isnan(e) else write_number(e, sign=True) for e in own)]
                    for name, *own in shown.itertuples()
                ],
                note=f"{rest} columns with smaller effects are not shown." if rest else "",
            ),
        ],
    )


def _verdicts(fit: TableFit) -> Section:
    model, found = fit.estimator, fit.model.assess(fit.rows.X)
    rows = []
    for name in fit.rows.environments:
        own = found.verdicts[fit.rows.groups == name]
        rows.append([name, *(write_share(np.mean(own == verdict)) for verdict in VERDICTS)])
    rare, outside = model.evidence_.usual
    unsure = "with a class less certain than in others, or " if fit.classes else ""
    return Section(
        title="Rare regions and thresholds of the verdict",
        blocks=[
            "Each prediction has a verdict: supported, rare or outside the evidence. Columns that "
            "the model ignores do not make a row rare.",
            {
                "Rare": f"{write_percent(rare)} of held-out rows, {unsure}far from training",
                "Outside": f"{write_percent(outside)} of held-out rows, farther from training",
                "Distance sees": SEEN[model.evidence_on_],
            },
            PageTable(
                caption="Verdicts on the training rows", columns=["site", *VERDICTS], rows=rows
            ),
        ],
    )


def _training(fit: TableFit, files: Sequence[str]) -> Section:
    rows, y, head = fit.rows, fit.rows.y, "mean of the target"
    if fit.classes:
        classes = [str(each) for each in fit.estimator.classes_]
        target = f"one of {len(classes)} classes ({listed(tuple(classes))})"
        y, head = y == fit.estimator.classes_[-1], f"share of {classes[-1]}"
    else:
        target = f"a number from {y.min():g} to {y.max():g}"
    means = {name: y[rows.groups == name].mean() for name in rows.environments}
    blocks: list[Block] = [
        {
            "Files": "; ".join(files),
            "Target": f"{rows.target}, {target}",
            "Sites": f"column {rows.environment}, {len(rows.environments)} of them",
        },
        PageTable(
            caption="Rows by site",
            columns=["site", "rows", head],
            rows=[
                [
                    name,
                    f"{n:,}",
                    write_share(means[name]) if fit.classes else write_number(means[name], 4),
                ]
                for name, n in rows.environments.items()
            ],
        ),
    ]
    if fit.schema is not None:
        columns = fit.schema.columns
        rest = len(columns) - MOST_COLUMNS
        table = PageTable(
            caption="Columns",
            columns=["column", "kind", "missing", "categories"],
            rows=[
                [c.name, c.kind, f"{c.missing:,}", ", ".join(c.categories[:8])]
                for c in columns[:MOST_COLUMNS]
            ],
            note=f"{rest} more columns." if rest > 0 else "",
        )
        blocks.append(table)
    return Section(title="What it was trained on", blocks=blocks)


def picture_sections(found: PictureFit) -> list[Section]:
    """Build the report section with the rarest pictures."""
    rows, assessed, thumbnails = found.fit.rows, found.fit.model.assess(found.fit.rows.X), []
    for k in np.argsort(assessed.scores)[:RAREST]:
        path, site, label = Path(found.folder.paths[found.kept[k]]), rows.groups[k], rows.y[k]
        image = make_thumbnail(read_picture(path.read_bytes()))
        caption = f"{site}, {label}: predicted {assessed.predictions[k]}, {assessed.verdicts[k]}"
        thumbnails.append((image, f"{label}, {site}, {path.name}", caption))
    note = Notice(
        "If the model is sure of an unusual picture, the verdict may be supported. Before you use "
        "the model for a new kind of picture, test it on some that have labels.",
        "note",
    )
    shown = ThumbnailGallery("Training pictures that are rarest", thumbnails)
    return [Section(title="The rarest pictures", blocks=[note, shown])]


def _describe_predictor(model: Any) -> dict[str, str]:
    trees = getattr(model.spec_, "trees", None)
    if trees is None:
        return {"Hidden layers": ", ".join(map(str, model.spec_.hidden or ())) or "none: linear"}
    return {
        "Trees": f"{len(model.trees_.boosters)} × {model.n_steps_} rounds of {trees.leaves} "
        f"leaves, at least {trees.least_rows} rows per leaf, learning rate {trees.learning_rate:g}"
    }


def _describe_rule(fit: TableFit) -> str:
    if fit.options.keep:
        return "--keep"
    if fit.held_out is None or not fit.held_out.columns:
        return "the preset's penalty weight"
    return "least worst regret over the futures"


def _card(fit: TableFit, files: Mapping[str, str], command: str) -> Section:
    weight, day = fit.estimator.hyper_.get("penalty_weight"), date.today().isoformat()
    facts = {
        "Model": f"{fit.kept.label}, {type(fit.estimator).__name__}",
        **_describe_predictor(fit.estimator),
        "Penalty weight": "none" if weight is None else f"{weight:g}",
        "Rule": _describe_rule(fit),
        "Trained": f"{day}, {fit.seconds:.0f} s, seed {fit.options.seed}",
        **{f"SHA-256 of {file}": digest for file, digest in files.items()},
    }
    return make_card("Model card", facts, LIMITS, command)

"""Report page of a fit, from the training rows to the command that makes it again."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure

from wri.evaluation.candidates import WITHOUT
from wri.evaluation.changes import Answer
from wri.evaluation.fitting import TableFit
from wri.evaluation.held_out import HeldOutScores, SiteInterval
from wri.evaluation.plots import plot_risk_coverage, plot_scores, risk_of
from wri.evaluation.verdict import beside, name_candidate, when
from wri.number_text import write_number, write_share
from wri.report.blocks import (
    Block,
    Notice,
    Page,
    PageCell,
    PagePicture,
    PageTable,
    Section,
)
from wri.report.pages.fit_card import (
    VERDICTS,
    card_section,
    coefficient_section,
    training_section,
    verdict_section,
)


def build_fit_page(
    fit: TableFit,
    files: Mapping[str, str],
    command: str,
    answers: Mapping[str, Answer],
    *,
    sampled: int | None = None,
    more: Sequence[Section] = (),
    day: date | None = None,
) -> Page:
    """Build the report page of a fit.

    `files` are digests by description. `sampled` is the number of rows that the diagnosis saw,
    where it did not see all. The sections `more` come before the model card.
    """
    sections = [
        _held_out(fit),
        _changes(fit),
        coefficient_section(fit),
        _coverage(fit),
        _sites(answers, sampled),
        verdict_section(fit),
        training_section(fit, [*files]),
        *more,
        card_section(fit, files, command, day or date.today()),
    ]
    verdict = fit.verdict
    return Page(
        title=f"Will '{fit.rows.target}' hold at a new {verdict.word.one}?",
        lead=[verdict.sentence, *verdict.advice, verdict.kept],
        opening=_futures(fit),
        notices=[Notice(text) for text in fit.warnings],
        sections=[section for section in sections if section.blocks],
    )


def _futures(fit: TableFit) -> list[Block]:
    """Build the table of models against futures, and the insurance curve."""
    held, word = fit.held_out, fit.verdict.word
    if held is None:
        return []
    heads, lines = future_table(fit)
    note = (
        f"Mean {held.loss_name} over {len(held.environments)} {word.many}, each left out in turn. "
        f"{fit.verdict.untried}"
    )
    table = PageTable(caption="Loss by model and future", columns=heads, rows=lines, note=note)
    if not held.columns:
        return [table]
    kept = next(line for line in lines if line[0].endswith("(kept)"))
    told = ", ".join(f"{head} {value}" for head, value in zip(heads[1:], kept[1:], strict=True))
    curve = PagePicture(
        figure=cast(Figure, fit.plot_insurance().get_figure()),
        alternative=f"{kept[0]}: {held.loss_name} {told}.",
        caption=f"Left: better at {word.many} like these. Down: better if the relation changes.",
    )
    return [table, curve]


def future_table(fit: TableFit) -> tuple[list[str], list[list[str]]]:
    """Return the heads and lines of the table of models against futures."""
    held, word = fit.held_out, fit.verdict.word
    assert held is not None
    shown = [c for c in held.candidates if c.name != WITHOUT or held.columns]
    values = {c.name: [held.losses(c.name, f).mean() for f in held.futures] for c in shown}
    digits = int(np.clip(2 - np.floor(np.log10(max(min(values[shown[0].name]), 1e-9))), 0, 6))
    lines = []
    for each in shown:
        label = name_candidate(each, held.columns, held.classes)
        label += " (kept)" if each.name == fit.kept.name else ""
        lines.append([label, *(f"{value:,.{digits}f}" for value in values[each.name])])
    heads = [f"loss ({held.loss_name})", *(when(f, held.columns, word) for f in held.futures)]
    return heads, lines


def _compared(fit: TableFit) -> dict[str, str]:
    """Return the labels of the kept model and of its ERM, by name."""
    held = fit.held_out
    assert held is not None
    erm = beside(fit.kept, held.candidates)
    both = [fit.kept] if erm is None else [fit.kept, erm]
    return {each.name: name_candidate(each, held.columns, held.classes) for each in both}


def show(held: HeldOutScores, value: float) -> str:
    """Format a score: per cent of right classes, or R²."""
    if not np.isfinite(value):
        return "–"
    return write_share(value) if held.classes else f"{value:.3f}"


def show_interval(held: HeldOutScores, found: SiteInterval) -> str:
    """Format both ends of an interval."""
    return f"{show(held, found.low)} to {show(held, found.high)}"


def _held_out(fit: TableFit) -> Section:
    held, word = fit.held_out, fit.verdict.word
    title = f"How well it holds at a {word.one} that it has not seen"
    if held is None:
        return Section(title=title, blocks=[Notice(fit.verdict.sentence)])
    models, kept = _compared(fit), fit.kept.name
    worst, ahead = min(held.of(kept), key=lambda each: each.score), held.new_site(kept)
    alternative = (
        f"{models[kept]} has its worst {held.measure}, {show(held, worst.score)}, at "
        f"{worst.environment}."
    )
    return Section(
        title=title,
        blocks=[
            f"Each {word.one} was held out in turn: preprocessing and models were fitted on all "
            f"other {word.many} and scored on it. The {held.measure} of {models[kept]} was "
            f"{show(held, ahead.value)} on average; for a new {word.one} expect "
            f"{show_interval(held, ahead)} (95 %, if it differs from these as they differ from "
            "each other).",
            PagePicture(
                figure=plot_scores(held, models, kept),
                alternative=alternative,
                caption=f"{held.measure.capitalize()} at {word.many} held out",
            ),
            score_table(held, models, word.one),
            "The model was kept by the same losses, so its score is slightly too good.",
        ],
    )


def score_table(held: HeldOutScores, models: Mapping[str, str], site: str) -> PageTable:
    """Build the table of scores and losses per site, with means and a new site's interval."""
    rows: list[list[str | PageCell]] = []
    for place, name in enumerate(held.environments):
        found = [held.of(model)[place] for model in models]
        losses = [write_number(each.loss, 4) for each in found]
        least = write_number(min(each.loss for each in found), 4)
        scores = [SiteInterval(each.score, each.low, each.high) for each in found]
        rows.append([name, f"{found[0].n:,}", *(_score_cell(held, each) for each in scores)])
        alone = losses.count(least) == 1
        rows[-1] += [PageCell(loss, best=alone and loss == least) for loss in losses]
    score, loss = ([held.mean(name, what) for name in models] for what in ("score", "loss"))
    rows.append([f"mean of {len(rows)}", "", *(_score_cell(held, each) for each in score)])
    rows[-1] += [PageCell(write_number(each.value, 4), _show_ends(each)) for each in loss]
    score, loss = ([held.new_site(name, what) for name in models] for what in ("score", "loss"))
    rows.append([f"a new {site}, 95 %", "", *(show_interval(held, each) for each in score)])
    rows[-1] += [_show_ends(each) for each in loss]
    labels = list(models.values())
    return PageTable(
        caption=f"Scores at each {site} held out",
        columns=[
            site,
            "rows",
            *(f"{held.measure}, {label}" for label in labels),
            *(f"{held.loss_name}, {label}" for label in labels),
        ],
        rows=rows,
        summary=2,
        note="95 % intervals: of a site by chance in its rows, of the mean by the spread "
        "between sites. The smallest loss at a site is bold.",
    )


def _score_cell(held: HeldOutScores, found: SiteInterval) -> PageCell:
    return PageCell(show(held, found.value), show_interval(held, found))


def _show_ends(found: SiteInterval) -> str:
    return f"{write_number(found.low)} to {write_number(found.high)}"


def _coverage(fit: TableFit) -> Section:
    held = fit.held_out
    if held is None:
        return Section(title="Risk and coverage", blocks=[])
    kept, models = fit.kept.name, _compared(fit)
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
            "the curve rises to the right, rare rows are predicted worse, and setting them aside "
            "helps. If it falls, rare rows are the clear cases: rare then means extreme among the "
            "training sites, not doubtful.",
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


def _sites(answers: Mapping[str, Answer], sampled: int | None) -> Section:
    overlap = answers.get("overlap")
    blocks: list[Block] = []
    if overlap is not None:
        note = "" if sampled is None else f" (From {sampled:,} rows drawn at random.)"
        blocks.append(overlap.meaning + note)
        figure, text = overlap.plot(), overlap.meaning
        if figure is not None:
            blocks.append(PagePicture(figure=figure, alternative=text, caption="Overlap of sites"))
        if overlap.answered and len(overlap.result.labels) <= 30:
            blocks.append(_overlap_table(overlap.result))
    return Section(title="What the sites have in common", blocks=blocks)


def _overlap_table(found: Any) -> PageTable:
    names = [str(label) for label in found.labels]
    return PageTable(
        caption="Overlap of each pair of sites (1: the same cases, 0: none in common)",
        columns=["site", *names],
        rows=[
            [name, *(f"{value:.2f}" for value in row)]
            for name, row in zip(names, found.overlap, strict=True)
        ],
    )


def _changes(fit: TableFit) -> Section:
    """Build the section on slopes by site."""
    blocks: list[Block] = []
    word = fit.verdict.word
    if fit.slopes is not None:
        figure, text = fit.slopes.plot(), fit.verdict.sentence
        blocks.append(PagePicture(figure=figure, alternative=text, caption="Slopes by site"))
        sites = [str(name) for name in fit.slopes.environments]
        changes = fit.verdict.changes
        if changes and len(sites) <= 30:
            rows = [
                [site, *(write_number(c.slopes.get(site, np.nan)) for c in changes)]
                for site in sites
            ]
            rows.append(["P", *(write_number(c.p) for c in changes)])
            blocks.append(
                PageTable(
                    caption=f"Slopes of flagged columns, in {changes[0].unit}",
                    columns=[word.one, *(c.encoded for c in changes)],
                    rows=rows,
                    summary=1,
                )
            )
    return Section(title=f"Columns whose relation to '{fit.rows.target}' changes", blocks=blocks)

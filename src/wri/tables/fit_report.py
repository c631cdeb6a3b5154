"""Report page of a fit, from the training rows to the command that makes it again."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np

from wri.report.blocks import (
    Block,
    FactList,
    Notice,
    Page,
    PageCell,
    PagePicture,
    PageTable,
    Section,
)
from wri.tables.choosing import label_of
from wri.tables.coefficients import coefficient_section
from wri.tables.diagnosing import Answer
from wri.tables.fit_card import VERDICTS, FitSource, card_section, verdict_section
from wri.tables.fit_plots import plot_risk_coverage, plot_scores, risk_of
from wri.tables.fitting import TableFit
from wri.tables.held_out import HeldOutScores, SiteInterval

MOST_COLUMNS = 200  # in the table of columns


def build_fit_page(
    fit: TableFit,
    source: FitSource,
    answers: Mapping[str, Answer],
    *,
    sampled: int | None = None,
    more: Sequence[Section] = (),
    day: date | None = None,
) -> Page:
    """Build the report page of a fit.

    Parameters
    ----------
    fit
        What was fitted.
    source
        Where its rows came from.
    answers
        Of the diagnosis.
    sampled
        Rows that the diagnosis saw, where it did not see all.
    more
        Further sections, before the model card.
    day
        Printed on the card; today when None.
    """
    sections = [
        _trained_on(fit, source),
        _held_out(fit),
        _insurance(fit, answers),
        coefficient_section(fit),
        _coverage(fit),
        _sites(answers, sampled),
        _changes(answers, sampled),
        verdict_section(fit),
        *more,
        card_section(fit, source, day or date.today()),
    ]
    kind = "classes" if fit.classes else "numbers"
    return Page(
        title=f"Fit of {source.target}",
        lead=[_lead(fit), fit.kept.why],
        facts=_facts(fit, kind),
        notices=[Notice(text) for text in fit.warnings],
        sections=[section for section in sections if section.blocks],
    )


def _lead(fit: TableFit) -> str:
    held, kept = fit.held_out, label_of(fit.kept.algorithm)
    rows, sites = sum(fit.environments.values()), len(fit.environments)
    if held is None:
        return f"{kept} was trained on {rows:,} rows of {sites} sites. No site was held out."
    found = held.new_site(fit.kept.algorithm)
    return (
        f"{kept} was trained on {rows:,} rows of {sites} sites. At sites that it had not seen its "
        f"{held.measure} was {show(held, found.value)} on average; for a new site expect "
        f"{show(held, found.low)} to {show(held, found.high)} (95 %, if it differs from these "
        "sites as they differ from each other)."
    )


def _facts(fit: TableFit, kind: str) -> list[tuple[str, str]]:
    facts = [
        ("Rows", f"{sum(fit.environments.values()):,}"),
        ("Sites", str(len(fit.environments))),
        ("Kept", label_of(fit.kept.algorithm)),
    ]
    held = fit.held_out
    if held is not None:
        own = [each.score for each in held.of(fit.kept.algorithm)]
        facts.append((f"Mean {held.measure} held out", show(held, float(np.mean(own)))))
        facts.append(("Worst site", show(held, min(own))))
    return facts


def show(held: HeldOutScores, value: float) -> str:
    """Format a score: per cent of right classes, or R²."""
    if not np.isfinite(value):
        return "–"
    return f"{100 * value:.1f} %" if held.classes else f"{value:.3f}"


def show_interval(held: HeldOutScores, found: SiteInterval) -> str:
    """Format both ends of an interval."""
    return f"{show(held, found.low)} to {show(held, found.high)}"


def _trained_on(fit: TableFit, source: FitSource) -> Section:
    blocks: list[Block] = [
        FactList(
            [
                ("Files", "; ".join(source.files)),
                ("Target", f"{source.target}, {describe_target(fit)}"),
                ("Sites", f"column {source.environment}, {len(fit.environments)} of them"),
            ]
        ),
        PageTable(
            caption="Rows by site",
            columns=["site", "rows", *_target_columns(fit)],
            rows=[[name, f"{n:,}", *_target_cells(fit, name)] for name, n in _by_site(fit)],
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


def describe_target(fit: TableFit) -> str:
    """Describe the target: classes, or a range of numbers."""
    if not fit.classes:
        return f"a number from {fit.data.y.min():g} to {fit.data.y.max():g}"
    classes = [str(each) for each in fit.estimator.classes_]
    shown = ", ".join(classes[:6]) + (" …" if len(classes) > 6 else "")
    return f"one of {len(classes)} classes ({shown})"


def _by_site(fit: TableFit) -> list[tuple[str, int]]:
    return list(fit.environments.items())


def _target_columns(fit: TableFit) -> list[str]:
    if not fit.classes:
        return ["mean of the target", "standard deviation"]
    classes = fit.estimator.classes_
    return [f"share of {classes[-1]}"] if len(classes) == 2 else ["classes"]


def _target_cells(fit: TableFit, name: str) -> list[str]:
    own = fit.data.y[fit.data.groups == name]
    if not fit.classes:
        return [f"{own.mean():.4g}", f"{own.std():.4g}"]
    classes = fit.estimator.classes_
    if len(classes) == 2:
        return [f"{100 * np.mean(own == classes[-1]):.1f} %"]
    return [str(len(np.unique(own)))]


def _held_out(fit: TableFit) -> Section:
    held, title = fit.held_out, "How well it holds at a site that it has not seen"
    if held is None:
        return Section(title=title, blocks=[Notice(fit.kept.warnings[-1])])
    figure = plot_scores(held, fit.kept.algorithm)
    worst = min(held.of(fit.kept.algorithm), key=lambda each: each.score)
    alternative = (
        f"{label_of(fit.kept.algorithm)} has its worst {held.measure}, "
        f"{show(held, worst.score)}, at {worst.environment}. {fit.kept.why}"
    )
    return Section(
        title=title,
        blocks=[
            "Each site was held out in turn: preprocessing and models were fitted on all other "
            "sites and scored on it. Choices such as the penalty weight used the other sites only.",
            PagePicture(
                figure=figure,
                alternative=alternative,
                caption=f"{held.measure.capitalize()} at sites held out",
            ),
            score_table(fit, held),
            "ERM and WRI were compared by the same losses, so the score of the kept one is "
            "slightly too good.",
        ],
    )


def score_table(fit: TableFit, held: HeldOutScores) -> PageTable:
    """Build the table of scores and losses per site, with means and a new site's interval."""
    names = held.algorithms
    by_site = {
        each: [s for s in held.scores if s.environment == each] for each in held.environments
    }
    rows: list[Sequence[str | PageCell]] = []
    for site, found in by_site.items():
        losses = [f"{each.loss:.4g}" for each in found]
        least = f"{min(each.loss for each in found):.4g}"
        cells: list[str | PageCell] = [site, f"{found[0].n:,}"]
        for each in found:
            ends = show_interval(held, SiteInterval(each.score, each.low, each.high))
            cells.append(PageCell(show(held, each.score), ends))
        cells += [
            PageCell(loss, best=losses.count(least) == 1 and loss == least) for loss in losses
        ]
        rows.append(cells)
    means: list[str | PageCell] = ["mean of sites", ""]
    new: list[str | PageCell] = ["a new site, 95 %", ""]
    for what in ("score", "loss"):
        for name in names:
            mean, ahead = held.mean(name, what), held.new_site(name, what)
            if what == "score":
                means.append(PageCell(show(held, mean.value), show_interval(held, mean)))
                new.append(show_interval(held, ahead))
            else:
                means.append(PageCell(f"{mean.value:.4g}", f"{mean.low:.3g} to {mean.high:.3g}"))
                new.append(f"{ahead.low:.3g} to {ahead.high:.3g}")
    labels = [label_of(name) for name in names]
    return PageTable(
        caption="Scores at sites held out",
        columns=[
            "site",
            "rows",
            *(f"{held.measure}, {label}" for label in labels),
            *(f"{held.loss_name}, {label}" for label in labels),
        ],
        rows=[*rows, means, new],
        summary=2,
        note="95 % intervals: of a site by chance in its rows, of the mean by the spread "
        "between sites. The smallest loss at a site is bold.",
    )


def _insurance(fit: TableFit, answers: Mapping[str, Answer]) -> Section:
    blocks: list[Block] = [fit.kept.why]
    weight = fit.estimator.hyper_.get("penalty_weight")
    if weight is not None:
        chosen = fit.estimator.selection_
        blocks.append(f"Penalty weight λ of the kept model: {weight:g} ({chosen}).")
    stress = answers.get("stress")
    if stress is not None:
        blocks += _answer_blocks(stress, "Stress test")
        if stress.answered:
            blocks.append(
                "These losses are on training rows; compare the models with each other and not "
                "with the scores above. WRI with its full penalty (--penalty-weight 3, or 5 for "
                "trees) shows the effect of more insurance."
            )
    return Section(title="ERM against WRI: cost and benefit of the insurance", blocks=blocks)


def _answer_blocks(answer: Answer, caption: str, note: str = "") -> list[Block]:
    figure = answer.plot()
    blocks: list[Block] = [answer.meaning + note]
    if figure is not None:
        blocks.append(PagePicture(figure=figure, alternative=answer.meaning, caption=caption))
    return blocks


def _coverage(fit: TableFit) -> Section:
    held = fit.held_out
    if held is None:
        return Section(title="Risk and coverage", blocks=[])
    kept = fit.kept.algorithm
    risk, verdicts = risk_of(held, kept), held.rows[kept].verdicts
    rows = []
    for verdict in VERDICTS:
        own = verdicts == verdict
        lost = f"{risk[own].mean():.3g}" if own.any() else "–"
        rows.append([verdict, f"{own.sum():,}", f"{100 * own.mean():.1f} %", lost])
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
                figure=plot_risk_coverage(held),
                alternative=f"{name} by verdict at sites held out: {said}.",
                caption="Risk by coverage at sites held out",
            ),
            PageTable(
                caption=f"Verdicts of {label_of(kept)} at sites held out",
                columns=["verdict", "rows", "share", name],
                rows=rows,
            ),
        ],
    )


def _sampled(sampled: int | None) -> str:
    return "" if sampled is None else f" (From {sampled:,} rows drawn at random.)"


def _sites(answers: Mapping[str, Answer], sampled: int | None) -> Section:
    overlap = answers.get("overlap")
    blocks: list[Block] = []
    if overlap is not None:
        blocks = _answer_blocks(overlap, "Overlap of sites", _sampled(sampled))
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


def _changes(answers: Mapping[str, Answer], sampled: int | None) -> Section:
    blocks: list[Block] = []
    for name, caption in (("changes", "Slopes by site"), ("position", "Gap beside chance")):
        if name in answers:
            blocks += _answer_blocks(answers[name], caption, _sampled(sampled))
    return Section(title="Columns whose relation to the target changes", blocks=blocks)

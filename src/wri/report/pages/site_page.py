"""Summary of a new site as text, JSON, page and figure: the answer, a small table, details."""

import shlex
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from wri.errors import InputError, shorten
from wri.evaluation.candidates import CONSTANT
from wri.evaluation.site_answer import SiteAnswer
from wri.evaluation.verdict import when
from wri.futures import LIKE
from wri.number_text import write_number, write_percent, write_share
from wri.ood.held_out import USUAL_BEYOND
from wri.report.page import Block, Page, PagePicture, PageTable, Section, make_card

PICTURES = (".png", ".svg", ".pdf")
SHOWN = 10  # sites, and columns
LIMITS = (
    "The interval is for a site that differs from the training sites as much as they differ from "
    "each other. It does not cover a site of another kind.",
    "Without outcomes, a changed relation to the target cannot be seen: every row may look "
    "ordinary and still be predicted wrongly.",
    "About a hundred outcomes are enough to show a large failure. wri predict --target compares "
    "the predictions with them.",
)


def loss_table(answer: SiteAnswer) -> PageTable:
    """Build the table of what is expected here, and of what a break would cost."""
    site, summary, loss = answer.site, answer.summary, answer.site.loss
    constant = None if summary is None else summary.loss(LIKE, CONSTANT)
    guess, lines = "–" if constant is None else write_number(constant), []
    if loss is not None:
        lines.append(["expected here", write_number(loss.new), guess])
        if loss.low is not None and loss.high is not None:
            ends = f"{write_number(loss.low)} to {write_number(loss.high)}"
            lines.append([f"its {write_percent(loss.level)} interval", ends, ""])
    if summary is not None and summary.loss(LIKE) is not None:
        for future, value in summary.futures[summary.kept].items():
            name = when(future, summary.columns, answer.word)
            name = f"training {answer.word.many} held out" if future == LIKE else name
            lines.append([name, write_number(value), guess])
    return PageTable(
        caption="What to expect here",
        columns=[site.measure, "model", "guessing"],
        rows=lines,
        note=f"Guessing always predicts what is usual at the training {answer.word.many}. Its loss "
        "was measured at each of them, held out in turn.",
    )


def row_table(answer: SiteAnswer) -> PageTable:
    """Build the table of how many rows are unusual, and why."""
    site, (rare, outside) = answer.site, answer.site.usual
    lines = [
        ["rows", f"{len(site.verdicts):,}", ""],
        ["rare", write_share(site.rare), write_share(rare)],
        ["outside the evidence", write_share(site.outside), write_share(outside)],
    ]
    for reason, count in count_reasons(site.reasons)[:SHOWN]:
        lines.append([f"not supported: {reason}", write_share(count / len(site.verdicts)), ""])
    for name, share in list(answer.beyond.items())[:SHOWN]:
        beyond = f"beyond the range of {shorten(name)}"
        lines.append([beyond, write_share(share), write_share(USUAL_BEYOND)])
    heads = ["rows of this file", "here", "usual"]
    return PageTable(caption="Rows of this file", columns=heads, rows=lines)


def describe_nearest(answer: SiteAnswer) -> str:
    """Name the training sites in which the rows are most common."""
    site = answer.site
    shares = sorted(zip(site.nearest_shares, map(str, site.labels), strict=True), reverse=True)
    like = ", ".join(
        f"{shorten(name)} {100 * share:.0f} %" for share, name in shares[:SHOWN] if share > 0.005
    )
    more = f" and {len(shares) - SHOWN} more" if len(shares) > SHOWN else ""
    return f"Rows are most common at {like}{more}."


def next_step(answer: SiteAnswer, folder: str, rows: str) -> str:
    """Return what to do next, with the command."""
    target = "TARGET" if answer.summary is None else answer.summary.target
    command = shlex.join(["wri", "predict", folder, rows, "-o", "predictions.csv"])
    known = f"{command} --target {shlex.quote(target)}"
    return {
        "yes": f"{command}; later, with outcomes of some rows, add --target {shlex.quote(target)}",
        "care": f"collect outcomes of some rows (about 100), then {known}",
        "no": f"collect outcomes of some rows (about 100) before any use, then {known}",
    }[answer.answer]


def count_reasons(reasons: np.ndarray) -> list[tuple[str, int]]:
    """Count the rows per reason of a verdict, the most first."""
    every = Counter(reason for each in reasons.tolist() if each for reason in each.split("; "))
    return every.most_common()


def site_document(answer: SiteAnswer) -> dict[str, Any]:
    """Return the summary for JSON."""
    site, summary = answer.site, answer.summary
    loss = site.loss
    return {
        "verdict": {
            "answer": answer.answer,
            "question": answer.question,
            "sentence": answer.sentence,
            "reasons": [{"answer": each, "text": text} for each, text in answer.reasons],
        },
        "futures": {} if summary is None else {k: dict(v) for k, v in summary.futures.items()},
        "kept": None if summary is None else summary.kept,
        "flagged": list(answer.used),
        "missing_columns": list(answer.missing),
        "rows": len(site.verdicts),
        "meaning": site.meaning.strip(),
        "measure": site.measure,
        "loss": None
        if loss is None
        else {
            "expected": loss.new,
            "low": loss.low,
            "high": loss.high,
            "level": loss.level,
            "training": loss.training,
            "constant": None if summary is None else summary.loss(LIKE, CONSTANT),
        },
        "rare": site.rare,
        "outside": site.outside,
        "usual": {"rare": site.usual[0], "outside": site.usual[1]},
        "nearest": dict(zip(map(str, site.labels), site.nearest_shares.tolist(), strict=True)),
        "mean_prediction": site.predictions.tolist(),
        "reasons": dict(count_reasons(site.reasons)),
        "unseen": [cells.counted.as_dict() for cells in site.unseen],
        "beyond_range": answer.beyond,
    }


def build_site_page(
    answer: SiteAnswer, model: str, rows: str, next_command: str, command: str
) -> Page:
    """Build the page of a new site; `model` and `rows` are paths."""
    facts = {
        "Model": model if answer.summary is None else f"{answer.summary.label}, {model}",
        "Rows": f"{rows}, {len(answer.site.verdicts):,}",
        "Made": date.today().isoformat(),
    }
    figure = PagePicture(
        figure=answer.site.plot(),
        alternative=answer.site.meaning,
        caption="How common the rows are in training, and where they are most common",
    )
    unseen = [cells.counted.sentence for cells in answer.site.unseen[:SHOWN]]
    about_rows: list[Block] = [row_table(answer), describe_nearest(answer)]
    others = answer.other_sentences
    target = "it" if answer.summary is None else f"'{answer.summary.target}'"
    return Page(
        title=f"Will {target} hold at this {answer.word.one}?",
        lead=[f"{answer.question} {answer.first_sentence}", f"Next: {next_command}"],
        opening=[loss_table(answer), figure],
        sections=[
            *([Section(title="Further reasons", blocks=[others])] if others else []),
            Section(title="The rows", blocks=[*about_rows, *([unseen] if unseen else [])]),
            make_card("Card", facts, LIMITS, command),
        ],
    )


def check_plot(path: Path) -> None:
    """Refuse a path that no figure can be written to."""
    if path.suffix.lower() not in PICTURES:
        raise InputError(f"--plot {shorten(path)} must end in {', '.join(PICTURES)}")
    if not path.parent.is_dir():
        raise InputError(f"--plot {shorten(path)}: {path.parent} is not a folder; create it first")

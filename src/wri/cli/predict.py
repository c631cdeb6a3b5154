"""The commands `wri predict` and `wri site`."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wri.cli import options
from wri.cli.console import (
    ProgressBar,
    echo,
    echo_wrapped,
    ending_cleanly,
    print_note,
    show_table,
)
from wri.errors import InputError, listed, shorten

if TYPE_CHECKING:
    from wri.cli.predicting import PredictionSummary
    from wri.evaluation.site_answer import SiteAnswer

SLOW = 5.0  # seconds from which the parts of the time are shown


def predict(
    model: options.SavedModel,
    rows: options.NewRows,
    output: options.Predictions,
    keep: options.KeptColumns = None,
    target: options.Outcomes = None,
    prefix: options.Prefix = "",
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    as_json: options.AsJson = False,
) -> None:
    """Predict the rows of a new site, with the evidence for each.

    The output has the input's rows in their order. It adds these columns: `prediction`;
    `probability` of the second of two classes, or one column per class (6 digits); `typicality`,
    the percentage of training rows that are as rare or rarer; `verdict`, which is supported, rare
    or outside (or unreadable, for a broken picture); `reason`, why a row is not supported;
    `nearest`, the training site where such a row is most common. Files may be larger than memory.

    Examples:

    `wri predict model/ new.csv -o predictions.csv`

    `wri predict model/ new.parquet -o out.parquet --keep id --target sick --json`

    `wri predict model/ photos/ -o predictions.csv --target class`

    Exit codes: 0 done, 2 wrong input (one sentence names the problem), 130 interrupted, 143
    terminated (both leave nothing half-written).
    """
    from wri.cli.predicting import predict_file, predict_pictures
    from wri.cli.writing import check_output
    from wri.datasets.table_files import open_table
    from wri.estimators.pictures import PictureClassifier

    with ending_cleanly():
        check_output(output)
        loaded = load_record(model)
        more: dict[str, Any] = {"target": target, "prefix": prefix}
        if rows.is_dir():
            _check_pictures(loaded, model, rows, target)
            with _bar("predicting") as progress:
                classifier = PictureClassifier.load(model)
                done = predict_pictures(classifier, rows, output, **more, progress=progress)
        else:
            _check_tables(loaded, model, "give a folder of pictures, not a file")
            table = open_table(rows, delimiter, encoding)
            kept = None if keep is None else [] if keep == "none" else keep.split(",")
            with _bar("predicting") as progress:
                done = predict_file(loaded, table, output, keep=kept, **more, progress=progress)
    if as_json:
        echo(json.dumps({"output": str(output), **done.as_dict()}))
    else:
        _show_predictions(done, output, prefix)


def _check_tables(loaded: Any, folder: Path, remedy: str) -> None:
    if hasattr(loaded, "backbone_"):
        raise InputError(f"{folder} is a model of pictures; {remedy}")


def _check_pictures(loaded: Any, folder: Path, rows: Path, target: str | None) -> None:
    if not hasattr(loaded, "backbone_"):
        raise InputError(f"{rows} is a folder, but {folder} is a model of tables; name a file")
    if target not in (None, "class"):
        raise InputError(
            f"--target {shorten(str(target))} names a column, but a folder of pictures has none; "
            "if the pictures lie in folders of their classes, give --target class"
        )


def _show_predictions(done: "PredictionSummary", output: Path, prefix: str) -> None:
    """Print whether the model holds, if outcomes tell, and what the rows look like."""
    _print_ignored(done.ignored)
    outcomes, verdicts = done.outcomes, done.verdicts
    verdict = None if outcomes is None else outcomes.verdict()
    if outcomes is not None and verdict is not None:
        alarm = "ALARM. " if verdict.alarms else ""
        echo_wrapped(f"{alarm}{verdict.question} {verdict.sentence}")
        echo("")
        show_table(outcomes.table())
        echo("")
        echo_wrapped(f"{outcomes.describe_guess()} {outcomes.describe_expected()}".strip())
    for found in done.unseen_counts:
        print_note(f"warning: {found.sentence}; these rows are not supported")
    total = max(1, done.rows)
    shares = [f"{verdicts[name] / total:.1%} {name}" for name in ("supported", "rare", "outside")]
    if verdicts["unreadable"]:
        shares.append(f"{verdicts['unreadable']} unreadable")
    echo(f"{done.rows:,} row{'s' * (done.rows != 1)}: {', '.join(shares)}")
    for reason, count in done.reasons.most_common(10):
        echo(f"  {count:,} {reason}")
    if done.positive is not None:
        echo(f"{prefix}probability is that of class {shorten(repr(done.positive))}")
    if sum(done.seconds.values()) >= SLOW:
        print_note(", ".join(f"{what} {seconds:.1f} s" for what, seconds in done.seconds.items()))
    echo(f"written to {output}")
    if verdict is not None and verdict.answer in ("no", "care"):
        echo(
            "Next: add these rows with their outcomes to the training table, then run wri diagnose "
            "and wri fit on it"
        )


def site(
    model: options.SavedModel,
    rows: options.NewRows,
    output: options.PageFolder = None,
    level: options.Level = 0.95,
    plot: options.Plot = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    memory: options.Memory = options.MEMORY,
    as_json: options.AsJson = False,
) -> None:
    """May the model be used at a site whose outcomes are not known yet?

    Answers yes, with care, or not without outcomes. It checks five things: columns that are missing
    or beyond their training range; unseen categories; rows unlike those of training; the loss if
    the columns that `wri fit` flagged told nothing or the opposite; and the interval of the loss.

    Examples:

    `wri site model/ new.csv`

    `wri site model/ new.csv -o site/ --json`

    Exit codes: 0 done, 2 wrong input (one sentence names the problem), 130 interrupted, 143
    terminated.
    """
    from wri.cli.predicting import read_features
    from wri.datasets.table_files import open_table
    from wri.evaluation.site_answer import answer_site
    from wri.evaluation.verdict import read_summary
    from wri.report.page import write_page
    from wri.report.pages.site_page import build_site_page, check_plot, next_step, site_document

    if plot is not None:
        check_plot(plot)
    loaded = load_record(model)
    _check_tables(loaded, model, "use PictureClassifier.load(...).score_new_site")
    summary = read_summary(loaded)
    table = open_table(rows, delimiter, encoding)
    with _bar("reading") as progress:
        frame, columns = read_features(loaded, table, progress, memory)
    found = loaded.score_new_site(frame, level=level)
    answer = answer_site(found, loaded, summary, columns.missing)
    ahead = next_step(answer, str(model), str(rows))
    page = None
    if output is not None:
        command = options.command_line()
        built = build_site_page(answer, str(model), str(rows), ahead, command)
        page = write_page(built, output / "site.html")
    if plot is not None:
        found.plot().savefig(plot)
    if as_json:
        written = {"next": ahead, "plot": plot and str(plot), "page": page and str(page)}
        ignored = list(columns.ignored)
        echo(json.dumps({**site_document(answer), "ignored_columns": ignored, **written}))
        return
    _print_ignored(columns.ignored)
    _show_site(answer)
    for path in filter(None, (page, plot)):
        echo(f"written to {path}")
    echo(f"Next: {ahead}")


def _show_site(answer: "SiteAnswer") -> None:
    """Print the answer, the losses and what the rows look like."""
    from wri.report.pages.site_page import describe_nearest, loss_table, row_table

    echo_wrapped(f"{answer.question} {answer.first_sentence}")
    for text in answer.other_sentences:
        echo_wrapped(text, "- ")
    for table in (loss_table(answer), row_table(answer)):
        echo("")
        show_table(table)
    echo("")
    for text in (describe_nearest(answer), *(c.counted.sentence for c in answer.site.unseen[:6])):
        echo_wrapped(text)


def _print_ignored(names: tuple[str, ...]) -> None:
    if names:
        print_note(f"columns that were not in training are ignored: {listed(names)}")


def load_record(folder: Path) -> Any:
    from wri.estimators import load
    from wri.estimators.table_model import TableModel

    return load(folder, TableModel)  # without the backbone of a model of pictures


@contextmanager
def _bar(what: str) -> Iterator[Any]:
    """Show a progress bar, and warnings as lines after it."""
    with ProgressBar(what) as bar, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda share: bar.step(share, 1.0)
    for text in dict.fromkeys(str(each.message) for each in caught):
        print_note(text)

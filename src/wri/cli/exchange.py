"""The commands `wri results export` and `wri results import`."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from wri.cli import options as given
from wri.cli.console import echo, say
from wri.cli.names import DOMAINBED_SELECTIONS
from wri.cli.results import results
from wri.errors import InputError, check_option

if TYPE_CHECKING:
    from wri.integrations.domainbed import FolderNote

SHOW = "show"  # hidden: any other first word is a store or an option
SHOWN_FOLDERS = 3


class ResultsGroup(TyperGroup):
    """Group that treats any unknown first word as a store."""

    def make_context(
        self, info_name: Any, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        if args and args[0] in self.commands and args[0] != SHOW:
            return super().make_context(info_name, args, parent, **extra)
        return self.commands[SHOW].make_context(info_name, args, parent, **extra)


def make_app() -> typer.Typer:
    """Make the group of `wri results`."""
    app = typer.Typer(
        cls=ResultsGroup,
        help="Show a sweep, export it to DomainBed, or import one from DomainBed.",
        rich_markup_mode="markdown",
    )
    app.command(SHOW, hidden=True)(results)
    app.command("export")(export)
    app.command("import")(import_)
    return app


def export(
    store: given.OldStore,
    domainbed: given.ExportFolder,
    name: given.DatasetNames = None,
    as_json: given.AsJson = False,
) -> None:
    """Write a sweep as folders that DomainBed's collect_results reads.

    Runs that diverged or are not finished are left out and listed. DomainBed has tables only for
    data sets that are registered there: `--name hospitals=PACS` renames a data set.

    Examples:

    `wri results export sweep.db --domainbed out/`

    `wri results export sweep.db --domainbed out/ --name hospitals=PACS`
    """
    from wri.integrations.domainbed import export_runs
    from wri.sweep import Store

    names = dict(_split_name(each) for each in name or ())
    with Store(store) as opened:
        outcomes = opened.outcomes()
    done = export_runs(outcomes, domainbed, names)
    if as_json:
        left_out = [each._asdict() for each in done.left_out]
        echo(
            json.dumps(
                {
                    "folder": str(done.folder),
                    "written": done.written,
                    "left_out": left_out,
                    "unregistered": done.unregistered,
                }
            )
        )
        return
    echo(f"{done.written} runs written to {done.folder}")
    for run, reason in done.left_out:
        say(f"left out: {run}: {reason}")
    if done.unregistered:
        say(
            f"DomainBed shows no tables of {', '.join(done.unregistered)}: register them there, or "
            "rename them with --name"
        )


def _split_name(text: str) -> tuple[str, str]:
    ours, equals, theirs = text.partition("=")
    if not (ours and equals and theirs):
        raise InputError(f"--name {text} must be OURS=THEIRS, such as --name hospitals=PACS")
    return ours, theirs


def import_(
    folder: given.SweepFolder,
    selection: given.DomainBedSelections = None,
    form: given.Form = "text",
    only_done: given.OnlyDone = False,
    as_json: given.AsJson = False,
) -> None:
    """Show the tables of a sweep folder of DomainBed, for any data set.

    Uses DomainBed's three selection methods, and otherwise the rules of `wri results`. Damaged
    lines and missing files are skipped; what could not be used is listed with the reason. A
    checkpoint whose accuracy is not a number is never chosen here; DomainBed chooses it if it is
    the first.

    Examples:

    `wri results import sweep/`

    `wri results import sweep/ --selection oracle --format csv --only-done`
    """
    from wri.integrations.domainbed import build_tables, read_sweep
    from wri.sweep.tables import as_csv, as_latex, as_rows, as_text

    for each in selection or ():
        check_option("--selection", each, DOMAINBED_SELECTIONS)
    sweep = read_sweep(folder, only_done)
    tables = build_tables(sweep.outcomes, sweep.infos, tuple(selection or DOMAINBED_SELECTIONS))
    if as_json:
        notes = [note._asdict() for note in sweep.notes]
        echo(json.dumps({"rows": as_rows(tables), "runs": len(sweep.runs), "notes": notes}))
        return
    echo({"text": as_text, "latex": as_latex, "csv": as_csv}[form](tables))
    for line in _list_notes(sweep.notes):
        say(line)


def _list_notes(notes: "Iterable[FolderNote]") -> list[str]:
    """Return one line per reason, with its folders."""
    folders: dict[tuple[bool, str], list[str]] = {}
    for note in notes:
        folders.setdefault((note.used, note.reason), []).append(note.folder)
    lines = []
    for (used, reason), names in sorted(folders.items()):
        more = len(names) - SHOWN_FOLDERS
        shown = ", ".join(names[:SHOWN_FOLDERS]) + (f" and {more} more" if more > 0 else "")
        lines.append(f"{'used' if used else 'not used'}: {shown}: {reason}")
    return lines

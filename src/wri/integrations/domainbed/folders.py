"""Exchange of sweeps with DomainBed: one folder per run, with its results at every checkpoint.

    <folder>/<hash>/results.jsonl     a JSON object per checkpoint, each line with a newline
    <folder>/<hash>/done

Import: DomainBed's own reader stops at a damaged line, skips folders without `results.jsonl`,
counts environments up to the first gap, and joins two folders of the same run. This reader uses
what can be used and gives the reason for the rest.

Export: a run that diverged is left out. DomainBed chooses the first checkpoint whose accuracy is
not a number, and would choose a good checkpoint before the divergence; without the run its tables,
like ours, choose among the other draws. Unfinished runs are left out as well.
"""

import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wri.errors import InputError, check_option, shorten
from wri.integrations.domainbed.hparams import LABELS, SPELLED, write_hparams
from wri.registry import OBJECTIVES
from wri.sweep.data import HOLDOUT
from wri.sweep.plan import describe_place, run_place, run_seed
from wri.sweep.selection import DatasetInfo, Outcome
from wri.sweep.tables import SelectionTable, build

RECORDS = "results.jsonl"
DONE = "done"
MARKER = "wri-export.json"
OF_COLLECT_RESULTS = ("results.txt", "results.tex")  # files that DomainBed writes beside the runs
ARGUMENTS: dict[str, type] = {"dataset": str, "algorithm": str, "test_envs": list}
ARGUMENTS |= {"hparams_seed": int, "trial_seed": int}
ACCURACY = re.compile(r"env(\d+)_(?:in|out)_acc")
METHODS = ("training-domain", "leave-one-out", "oracle")
"""DomainBed's three selection methods, in the order of its tables."""

DATASETS = (
    *("Debug28", "Debug224", "ColoredMNIST", "RotatedMNIST", "VLCS", "PACS", "OfficeHome"),
    *("TerraIncognita", "DomainNet", "SVIRO", "WILDSCamelyon", "WILDSFMoW"),
    *("SpawriousO2O_easy", "SpawriousO2O_medium", "SpawriousO2O_hard"),
    *("SpawriousM2M_easy", "SpawriousM2M_medium", "SpawriousM2M_hard"),
)
"""Data sets that DomainBed has tables for; it silently ignores all others."""


class FolderNote(NamedTuple):
    """Note on a folder: what is wrong, and whether its run is used.

    Attributes
    ----------
    folder : str
        Name of the folder.
    reason : str
        What is wrong.
    used : bool
        Whether its run is used.

    Examples
    --------
    >>> from wri.integrations.domainbed import FolderNote
    >>> FolderNote("a1b2", "it has no results.jsonl", used=False).used
    False
    """

    folder: str
    reason: str
    used: bool


class ImportedSweep(NamedTuple):
    """Contents of a sweep folder of DomainBed.

    Attributes
    ----------
    outcomes : list of Outcome
        Results of the runs that can be used.
    infos : list of DatasetInfo
        Data sets by name; DomainBed's records do not name the environments.
    notes : list of FolderNote
        Notes on folders.

    Examples
    --------
    >>> from wri.integrations.domainbed import ImportedSweep
    >>> ImportedSweep(outcomes=[], infos=[], notes=[]).outcomes
    []
    """

    outcomes: list[Outcome]
    infos: list[DatasetInfo]
    notes: list[FolderNote]


def build_tables(
    outcomes: Iterable[Outcome], infos: Iterable[DatasetInfo], methods: Sequence[str] = METHODS
) -> list[SelectionTable]:
    """Build tables by DomainBed's selection methods.

    Parameters
    ----------
    outcomes : iterable of Outcome
        Runs with accuracies.
    infos : iterable of DatasetInfo
        Their data sets.
    methods : sequence of str, default=("training-domain", "leave-one-out", "oracle")
        Selection methods out of `METHODS`.

    Returns
    -------
    tables : list of SelectionTable
        One per method and data set, by the rules of `wri results`.

    Raises
    ------
    InputError
        If a method is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.integrations.domainbed import build_tables
    >>> from wri.sweep import DatasetInfo, Outcome
    >>> values = {f"env{e}_{part}": np.array([0.7]) for e in (0, 1) for part in ("in", "out")}
    >>> runs = [
    ...     Outcome(
    ...         dataset="toy",
    ...         algorithm="erm",
    ...         test_envs=(e,),
    ...         hparams_seed=0,
    ...         trial_seed=0,
    ...         steps=np.array([9]),
    ...         measures={"accuracy": values},
    ...     )
    ...     for e in (0, 1)
    ... ]
    >>> info = DatasetInfo(name="toy", environments=("a", "b"), constant={}, held_back=(0.2, 0.2))
    >>> (table,) = build_tables(runs, [info], ["training-domain"])
    >>> [str(cell) for cell in table.lines["erm"]]
    ['70.0', '70.0', '70.0']
    """
    for method in methods:
        check_option("--selection", method, METHODS)
    return build(outcomes, infos, methods, measure="accuracy")


def read_sweep(folder: Path, only_done: bool = False) -> ImportedSweep:
    """Read a sweep folder of DomainBed.

    Parameters
    ----------
    folder : Path
        Output folder of the sweep, with one folder per run.
    only_done : bool, default=False
        Whether to leave out runs without the file `done`. DomainBed's tables count them.

    Returns
    -------
    sweep : ImportedSweep
        The runs, the data sets, and notes. Algorithms of wri have their names in wri, the others
        those of DomainBed.

    Raises
    ------
    InputError
        If the folder holds no usable run.

    Examples
    --------
    >>> import json
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from wri.integrations.domainbed import read_sweep
    >>> args = {"dataset": "PACS", "algorithm": "ERM", "test_envs": [0]}
    >>> line = {"args": {**args, "hparams_seed": 0, "trial_seed": 0}, "hparams": {}, "step": 9}
    >>> line |= {f"env{e}_{part}_acc": 0.7 for e in (0, 1) for part in ("in", "out")}
    >>> with TemporaryDirectory() as folder:
    ...     Path(folder, "run").mkdir()
    ...     _ = Path(folder, "run", "results.jsonl").write_text(json.dumps(line))
    ...     sweep = read_sweep(Path(folder))
    >>> [run.algorithm for run in sweep.outcomes]
    ['erm']
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {shorten(folder)}; name a sweep folder of DomainBed")
    if (folder / RECORDS).exists():
        raise InputError(f"{shorten(folder)} is the folder of one run; name the one above it")
    found: dict[str, Outcome] = {}  # by folder
    notes: list[FolderNote] = []
    for inside in sorted(path for path in folder.iterdir() if path.is_dir()):
        try:
            if only_done and not (inside / DONE).exists():
                raise InputError("the run is not finished: it has no file `done`")
            found[inside.name], remarks = _read_run(inside)
            notes += [FolderNote(inside.name, remark, True) for remark in remarks]
        except InputError as error:
            notes.append(FolderNote(inside.name, str(error), False))
    counts = {run.dataset: Counter[int]() for run in found.values()}
    for run in found.values():
        counts[run.dataset][_count_environments(run)] += 1
    usual = {name: counted.most_common(1)[0][0] for name, counted in counts.items()}
    kept: dict[tuple[Any, ...], str] = {}  # folder by place
    for name, run in found.items():
        n = _count_environments(run)
        if n != usual[run.dataset]:
            reason = f"{run.dataset} has {usual[run.dataset]} environments in other runs, {n} here"
            notes.append(FolderNote(name, reason, False))
        elif kept.setdefault(run_place(run), name) != name:
            notes.append(FolderNote(name, f"{kept[run_place(run)]} holds the same run", False))
    if not kept:
        reasons = "; ".join(f"{note.folder}: {note.reason}" for note in notes[:3])
        raise InputError(
            f"{shorten(folder)} holds no run that can be used ({reasons or 'it has no folders'}); "
            "name the folder whose folders hold results.jsonl"
        )
    infos = [
        DatasetInfo(
            name=name,
            environments=tuple(f"env{k}" for k in range(n)),
            constant={},
            held_back=(HOLDOUT,) * n,
        )
        for name, n in sorted(usual.items())
    ]
    return ImportedSweep([found[name] for name in kept.values()], infos, notes)


def _count_environments(run: Outcome) -> int:
    return len(run.measures["accuracy"]) // 2  # "in" and "out"


def _read_run(folder: Path) -> tuple[Outcome, list[str]]:
    """Read a run; return it with remarks on what was skipped."""
    lines, remarks = _read_lines(folder / RECORDS)
    (start, first), *_ = lines.items()
    args, splits = _read_arguments(first, start), _find_splits(first)
    steps: dict[int, list[float]] = {}
    for number, line in lines.items():
        if _read_arguments(line, number) != args:
            raise InputError(f"line {number} belongs to another run than line {start}")
        step = line.get("step")
        if not isinstance(step, int):
            raise InputError(f"line {number} has no step")
        if step in steps:
            remarks.append(f"step {step} is repeated; line {number} counts")
        steps[step] = [_read_accuracy(line, split, number) for split in splits]
    n = len(splits) // 2
    if not args["test_envs"] or any(e not in range(n) for e in args["test_envs"]):
        raise InputError(f"test_envs {args['test_envs']} are not among the {n} environments")
    order = sorted(steps)
    values = np.array([steps[step] for step in order]).T  # [splits, T]
    lost = [str(step) for step in order if any(map(isnan, steps[step]))]
    if lost:
        remarks.append(
            f"accuracies are not numbers at step {', '.join(lost)}, which is never chosen "
            "(DomainBed chooses such a step if it is the first)"
        )
    if not (folder / DONE).exists():
        remarks.append("the run may be unfinished: it has no file `done`; DomainBed counts it")
    outcome = Outcome(
        dataset=args["dataset"],
        algorithm=LABELS.get(args["algorithm"], args["algorithm"]),
        test_envs=tuple(sorted(args["test_envs"])),
        hparams_seed=args["hparams_seed"],
        trial_seed=args["trial_seed"],
        steps=np.array(order),
        measures={"accuracy": dict(zip(splits, values, strict=True))},
    )
    return outcome, remarks


def _read_lines(path: Path) -> tuple[dict[int, dict[str, Any]], list[str]]:
    """Read JSON objects by line number; skip a damaged last line."""
    if not path.exists():
        raise InputError(f"it has no {RECORDS}")
    texts = path.read_text(encoding="utf-8", errors="replace").split("\n")
    numbered = {n: text for n, text in enumerate(texts, 1) if text.strip()}
    lines, remarks = {}, []
    for number, text in numbered.items():
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if isinstance(line, dict):
            lines[number] = line
        elif number == max(numbered):
            remarks.append(f"line {number}, the last, is cut off and was skipped")
        else:
            raise InputError(f"line {number} is not a JSON object")
    if not lines:
        raise InputError(f"{RECORDS} holds no complete line")
    return lines, remarks


def _read_arguments(line: Mapping[str, Any], number: int) -> dict[str, Any]:
    given = line.get("args")
    args: dict[str, Any] = given if isinstance(given, dict) else {}
    for name, kind in ARGUMENTS.items():
        if not isinstance(args.get(name), kind):
            raise InputError(f"line {number} has no args.{name}")
    return {name: args[name] for name in ARGUMENTS}


def _find_splits(line: Mapping[str, Any]) -> list[str]:
    """Return the names of all splits; refuse a gap between the environments."""
    numbers = [int(match[1]) for key in line if (match := ACCURACY.fullmatch(key))]
    if not numbers:
        raise InputError("it has no accuracies env0_in_acc, env0_out_acc, …")
    n = 1 + max(numbers)
    splits = [f"env{k}_{part}" for k in range(n) for part in ("in", "out")]
    for split in splits:
        if f"{split}_acc" not in line:
            raise InputError(
                f"{split}_acc is missing among {n} environments; DomainBed counts only those "
                "before the gap"
            )
    return splits


def _read_accuracy(line: Mapping[str, Any], split: str, number: int) -> float:
    value = line.get(f"{split}_acc")
    if not isinstance(value, int | float):
        raise InputError(f"line {number} has no {split}_acc")
    if not (isnan(value) or 0 <= value <= 1):
        raise InputError(f"{split}_acc = {value:g} in line {number} is not from 0 to 1")
    return float(value)


class Export(NamedTuple):
    """Summary of an export.

    Attributes
    ----------
    folder : Path
        The folder.
    written : int
        Number of written runs.
    left_out : dict of str to str
        Runs that were not written, with the reason.
    unregistered : list of str
        Data sets without a table in DomainBed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from wri.integrations.domainbed import Export
    >>> Export(Path("out"), 3, {}, ["hospitals"]).written
    3
    """

    folder: Path
    written: int
    left_out: dict[str, str]
    unregistered: list[str]


def export_runs(
    outcomes: Iterable[Outcome], folder: Path, names: Mapping[str, str] | None = None
) -> Export:
    """Write runs as a sweep folder of DomainBed.

    Parameters
    ----------
    outcomes : iterable of Outcome
        Runs of a store, finished or not.
    folder : Path
        A new or empty folder, or one with only an earlier export, which is replaced.
    names : mapping of str to str or None, default=None
        DomainBed's names by our names of data sets; the others keep theirs.

    Returns
    -------
    export : Export
        Number of written runs, and those left out with the reason.

    Raises
    ------
    InputError
        If no run can be exported, or the folder holds other files.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from wri.integrations.domainbed import export_runs
    >>> from wri.sweep import Outcome
    >>> values = {f"env{e}_{part}": np.array([0.7]) for e in (0, 1) for part in ("in", "out")}
    >>> run = Outcome(
    ...     dataset="PACS",
    ...     algorithm="erm",
    ...     test_envs=(0,),
    ...     hparams_seed=0,
    ...     trial_seed=0,
    ...     steps=np.array([9]),
    ...     measures={"accuracy": values},
    ... )
    >>> with TemporaryDirectory() as folder:
    ...     done = export_runs([run], Path(folder, "out"))
    >>> done.written, done.left_out
    (1, {})
    """
    outcomes = list(outcomes)
    theirs = _map_names({run.dataset for run in outcomes}, names or {})
    left_out, lines = {}, {}
    for run in outcomes:
        if reason := _find_obstacle(run):
            left_out[describe_place(run)] = reason
        else:
            args = _make_arguments(run, theirs[run.dataset])
            text = json.dumps(args, sort_keys=True).encode()
            name = hashlib.md5(text, usedforsecurity=False).hexdigest()
            lines[name] = _make_records(run, {**args, "output_dir": str(folder / name)})
    if not lines:
        reasons = ", ".join(sorted({*left_out.values()})) or "there is none"
        raise InputError(f"no run can be exported to {shorten(folder)}: {reasons}")
    _write(folder, lines)
    return Export(folder, len(lines), left_out, sorted({*theirs.values()} - {*DATASETS}))


def _map_names(ours: set[str], names: Mapping[str, str]) -> dict[str, str]:
    for name in names:
        if name not in ours:
            known = ", ".join(sorted(ours))
            raise InputError(f"--name {name}=…: there are no runs of {name!r}, but of {known}")
    mapped = {name: names.get(name, name) for name in sorted(ours)}
    for theirs, n in Counter(mapped.values()).items():
        if n > 1:
            same = " and ".join(name for name in mapped if mapped[name] == theirs)
            raise InputError(
                f"{same} would both be called {theirs!r}; give each data set a name with --name"
            )
    return mapped


def _find_obstacle(run: Outcome) -> str:
    """Return why a run is left out; empty if it is not."""
    if len(run.steps) == 0:
        return "not finished"
    if run.diverged_at is not None:
        return f"diverged at step {run.diverged_at}"
    has_accuracy = "accuracy" in run.measures
    return "" if has_accuracy else "no accuracy was recorded, and DomainBed has no other measure"


def _make_arguments(run: Outcome, dataset: str) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "algorithm": SPELLED.get(run.algorithm, OBJECTIVES[run.algorithm].label),
        "test_envs": list(run.test_envs),
        "hparams_seed": run.hparams_seed,
        "trial_seed": run.trial_seed,
        "seed": run_seed(*run_place(run)),
        "holdout_fraction": HOLDOUT,
    }


def _make_records(run: Outcome, args: Mapping[str, Any]) -> str:
    """Return the lines of `results.jsonl`; balanced rows are ours only."""
    common = {"args": args, "hparams": write_hparams(run.model)}
    accuracies = {
        f"{split}_acc": values
        for split, values in run.measures["accuracy"].items()
        if split.endswith(("_in", "_out"))
    }
    lines = [
        {**common, "step": int(step)} | {name: float(v[t]) for name, v in accuracies.items()}
        for t, step in enumerate(run.steps)
    ]
    return "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines)


def _write(folder: Path, lines: Mapping[str, str]) -> None:
    """Write each file completely or not at all; delete runs of an earlier export last."""
    earlier = _find_earlier(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / MARKER, _make_marker({*earlier, *lines}))
    for name, text in lines.items():
        (folder / name).mkdir(exist_ok=True)
        _replace(folder / name / RECORDS, text)
        _replace(folder / name / DONE, DONE)
    for name in earlier - lines.keys():
        shutil.rmtree(folder / name)
    _replace(folder / MARKER, _make_marker(lines))


def _make_marker(names: Iterable[str]) -> str:
    return json.dumps({"written by": "wri results export", "folders": sorted(names)}) + "\n"


def _replace(path: Path, text: str) -> None:
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def _find_earlier(folder: Path) -> set[str]:
    """Return the runs of an earlier export; refuse anything else in the folder."""
    try:
        names = json.loads((folder / MARKER).read_text(encoding="utf-8"))["folders"]
        known = {*names, *(f"{name}/{file}" for name in names for file in (RECORDS, DONE))}
    except FileNotFoundError:
        known = set()
    except (NotADirectoryError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{shorten(folder)} holds no export; name a new folder") from error
    known |= {MARKER, *OF_COLLECT_RESULTS}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.removesuffix(".new") not in known or path.is_symlink():
            raise InputError(
                f"{shorten(folder)} holds {shorten(name)}, which no export wrote; name a new folder"
            )
    return {path.name for path in folder.rglob("*") if path.is_dir()}

"""Sweep folders of DomainBed, of any data set, as runs of a sweep.

DomainBed's own reader stops at a damaged line, skips folders without `results.jsonl`, counts
environments up to the first gap, and joins two folders of the same run. This reader uses what can
be used and gives the reason for the rest.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wri.errors import InputError, check_option, shorten
from wri.integrations.domainbed.export import DONE, RECORDS
from wri.integrations.domainbed.hparams import LABELS
from wri.sweep.data import HOLDOUT
from wri.sweep.outcomes import DatasetInfo, Outcome
from wri.sweep.plan import run_place
from wri.sweep.tables import SelectionTable, build

ARGUMENTS = {
    "dataset": str,
    "algorithm": str,
    "test_envs": list,
    "hparams_seed": int,
    "trial_seed": int,
}
METHODS = ("training-domain", "leave-one-out", "oracle")
"""DomainBed's three selection methods, in the order of its tables."""

ACCURACY = re.compile(r"env(\d+)_(?:in|out)_acc")


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


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """Run of DomainBed.

    Attributes
    ----------
    folder : str
        Name of its folder.
    outcome : Outcome
        Its results.
    hparams : mapping of str to Any
        Hyper-parameters by DomainBed's names.
    environments : int
        Number of environments.
    held_back : float
        Share of an environment's rows that is not used for training.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.integrations.domainbed import ImportedRun
    >>> from wri.sweep import Outcome
    >>> outcome = Outcome(
    ...     dataset="PACS",
    ...     algorithm="erm",
    ...     test_envs=(0,),
    ...     hparams_seed=0,
    ...     trial_seed=0,
    ...     steps=np.array([], int),
    ...     measures={},
    ... )
    >>> run = ImportedRun(folder="a1", outcome=outcome, hparams={}, environments=4, held_back=0.2)
    >>> run.outcome.dataset
    'PACS'
    """

    folder: str
    outcome: Outcome
    hparams: Mapping[str, Any]  # under DomainBed's names
    environments: int
    held_back: float  # share of an environment's rows that is not trained on


@dataclass(frozen=True, kw_only=True)
class ImportedSweep:
    """Contents of a sweep folder of DomainBed.

    Attributes
    ----------
    runs : list of ImportedRun
        Runs that can be used.
    notes : list of FolderNote
        Notes on folders.

    Examples
    --------
    >>> from wri.integrations.domainbed import ImportedSweep
    >>> ImportedSweep(runs=[], notes=[]).outcomes
    []
    """

    runs: list[ImportedRun]
    notes: list[FolderNote]

    @property
    def outcomes(self) -> list[Outcome]:
        """Results of the runs."""
        return [run.outcome for run in self.runs]

    @property
    def infos(self) -> list[DatasetInfo]:
        """Data sets by name; DomainBed's records do not name the environments."""
        any_run = {run.outcome.dataset: run for run in self.runs}
        return [
            DatasetInfo(
                name=name,
                environments=tuple(f"env{k}" for k in range(run.environments)),
                constant={},
                held_back=(run.held_back,) * run.environments,
            )
            for name, run in sorted(any_run.items())
        ]


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


class UnusableRun(Exception):
    """Reason why a run cannot be used."""


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
    >>> [run.outcome.algorithm for run in sweep.runs]
    ['erm']
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {shorten(folder)}; name a sweep folder of DomainBed")
    if (folder / RECORDS).exists():
        raise InputError(f"{shorten(folder)} is the folder of one run; name the one above it")
    runs: list[ImportedRun] = []
    notes: list[FolderNote] = []
    for inside in sorted(path for path in folder.iterdir() if path.is_dir()):
        try:
            if only_done and not (inside / DONE).exists():
                raise UnusableRun("it has no file `done`, so the run is not finished")
            run, remarks = _read_run(inside)
        except UnusableRun as reason:
            notes.append(FolderNote(inside.name, str(reason), False))
            continue
        runs.append(run)
        notes += [FolderNote(inside.name, remark, True) for remark in remarks]
    runs = _drop_repeated(_drop_other_numbers(runs, notes), notes)
    if not runs:
        found = "; ".join(f"{note.folder}: {note.reason}" for note in notes[:3])
        raise InputError(
            f"{shorten(folder)} holds no run that can be used ({found or 'it has no folders'}); "
            "name the folder whose folders hold results.jsonl"
        )
    return ImportedSweep(runs=runs, notes=notes)


def _read_run(folder: Path) -> tuple[ImportedRun, list[str]]:
    """Read a run; return it with remarks on what was skipped."""
    lines, remarks = _read_lines(folder / RECORDS)
    first = lines[0][1]
    args = _read_arguments(first, lines[0][0])
    environments = _count_environments(first)
    splits = _name_splits(environments)
    steps: dict[int, list[float]] = {}
    for number, line in lines:
        if _read_arguments(line, number) != args:
            raise UnusableRun(f"line {number} belongs to another run than line {lines[0][0]}")
        step = line.get("step")
        if not isinstance(step, int):
            raise UnusableRun(f"line {number} lacks its step")
        if step in steps:
            remarks.append(f"step {step} is repeated in line {number}, which counts")
        steps[step] = [_read_accuracy(line, split, number) for split in splits]
    outside = [e for e in args["test_envs"] if e not in range(environments)]
    if outside or not args["test_envs"]:
        raise UnusableRun(f"test_envs {args['test_envs']} are not among {environments} of them")
    order = sorted(steps)
    values = np.array([steps[step] for step in order]).T  # [splits, T]
    lost = [step for step, column in zip(order, values.T, strict=True) if np.isnan(column).any()]
    if lost:
        remarks.append(
            f"accuracies are not numbers at step {', '.join(map(str, lost))}, which is not chosen "
            "(DomainBed chooses such a step if it is the first)"
        )
    if not (folder / DONE).exists():
        remarks.append("it has no file `done`, so the run may be unfinished; DomainBed counts it")
    outcome = Outcome(
        dataset=args["dataset"],
        algorithm=LABELS.get(args["algorithm"], args["algorithm"]),
        test_envs=tuple(sorted(args["test_envs"])),
        hparams_seed=args["hparams_seed"],
        trial_seed=args["trial_seed"],
        steps=np.array(order),
        measures={"accuracy": dict(zip(splits, values, strict=True))},
    )
    share = first["args"].get("holdout_fraction")
    run = ImportedRun(
        folder=folder.name,
        outcome=outcome,
        hparams=_as_mapping(first.get("hparams")),
        environments=environments,
        held_back=float(share) if isinstance(share, int | float) else HOLDOUT,
    )
    return run, remarks


def _read_lines(path: Path) -> tuple[list[tuple[int, dict[str, Any]]], list[str]]:
    """Read numbered JSON objects; skip a damaged last line."""
    try:
        texts = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise UnusableRun(f"it has no {RECORDS}") from None
    except UnicodeDecodeError:
        raise UnusableRun(f"{RECORDS} is not a text") from None
    numbered = [(n, text) for n, text in enumerate(texts, 1) if text.strip()]
    lines, remarks = [], []
    for number, text in numbered:
        try:
            line = json.loads(text)
        except ValueError:
            if number != numbered[-1][0]:
                raise UnusableRun(f"line {number} is not JSON") from None
            remarks.append(f"the last line, {number}, is cut off and was skipped")
            continue
        if not isinstance(line, dict):
            raise UnusableRun(f"line {number} is not a JSON object")
        lines.append((number, line))
    if not lines:
        raise UnusableRun(f"{RECORDS} holds no complete line")
    return lines, remarks


def _read_arguments(line: Mapping[str, Any], number: int) -> dict[str, Any]:
    args = _as_mapping(line.get("args"))
    for name, kind in ARGUMENTS.items():
        if not isinstance(args.get(name), kind):
            raise UnusableRun(f"line {number} lacks args.{name}")
    if not all(isinstance(e, int) for e in args["test_envs"]):
        raise UnusableRun(f"args.test_envs in line {number} are not numbers")
    return {name: args[name] for name in ARGUMENTS}


def _count_environments(line: Mapping[str, Any]) -> int:
    numbers = [int(match[1]) for key in line if (match := ACCURACY.fullmatch(key))]
    if not numbers:
        raise UnusableRun("it has no accuracies env0_in_acc, env0_out_acc, …")
    n = 1 + max(numbers)
    for split in _name_splits(n):
        if f"{split}_acc" not in line:
            raise UnusableRun(
                f"{split}_acc is missing among {n} environments; DomainBed counts only those "
                "before the gap"
            )
    return n


def _name_splits(environments: int) -> list[str]:
    return [f"env{k}_{part}" for k in range(environments) for part in ("in", "out")]


def _read_accuracy(line: Mapping[str, Any], split: str, number: int) -> float:
    value = line.get(f"{split}_acc")
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UnusableRun(f"line {number} lacks {split}_acc")
    if not (isnan(value) or 0 <= value <= 1):
        raise UnusableRun(f"{split}_acc = {value:g} in line {number} is not from 0 to 1")
    return float(value)


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _drop_other_numbers(runs: list[ImportedRun], notes: list[FolderNote]) -> list[ImportedRun]:
    """Drop runs with another number of environments than most runs of their data set."""
    counts: dict[str, Counter[int]] = {}
    for run in runs:
        counts.setdefault(run.outcome.dataset, Counter())[run.environments] += 1
    kept = []
    for run in runs:
        ((usual, _),) = counts[run.outcome.dataset].most_common(1)
        if run.environments == usual:
            kept.append(run)
        else:
            reason = (
                f"it has {run.environments} environments, but other runs of "
                f"{run.outcome.dataset} have {usual}"
            )
            notes.append(FolderNote(run.folder, reason, False))
    return kept


def _drop_repeated(runs: Iterable[ImportedRun], notes: list[FolderNote]) -> list[ImportedRun]:
    """Drop runs that another folder already holds."""
    kept: dict[tuple[Any, ...], ImportedRun] = {}
    for run in runs:
        place = run_place(run.outcome)
        if place in kept:
            reason = f"{kept[place].folder} holds the same run"
            notes.append(FolderNote(run.folder, reason, False))
        else:
            kept[place] = run
    return list(kept.values())

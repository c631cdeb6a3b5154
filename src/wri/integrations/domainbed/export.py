"""Runs of a sweep as folders that DomainBed's `collect_results` reads.

    <folder>/<hash>/results.jsonl     a JSON object per checkpoint, each line with a newline
    <folder>/<hash>/done

A run that diverged is left out. DomainBed chooses the first checkpoint whose accuracy is not a
number, and would choose a good checkpoint before the divergence; without the run its tables, like
ours, choose among the other draws. Unfinished runs are left out as well.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wri.errors import InputError, shorten
from wri.integrations.domainbed.hparams import SPELLED, write_hparams
from wri.registry import OBJECTIVES
from wri.sweep.data import HOLDOUT
from wri.sweep.outcomes import Outcome
from wri.sweep.plan import describe_place, run_place, run_seed

RECORDS = "results.jsonl"
DONE = "done"
UNFINISHED = f"{RECORDS}.new"  # DomainBed does not look at it
MARKER = "wri-export.json"
OF_COLLECT_RESULTS = ("results.txt", "results.tex")  # files that DomainBed writes beside the runs

DATASETS = (
    *("Debug28", "Debug224", "ColoredMNIST", "RotatedMNIST", "VLCS", "PACS", "OfficeHome"),
    *("TerraIncognita", "DomainNet", "SVIRO", "WILDSCamelyon", "WILDSFMoW"),
    *("SpawriousO2O_easy", "SpawriousO2O_medium", "SpawriousO2O_hard"),
    *("SpawriousM2M_easy", "SpawriousM2M_medium", "SpawriousM2M_hard"),
)
"""Data sets that DomainBed has tables for; it silently ignores all others."""


class RunLeftOut(NamedTuple):
    """Run that was not exported.

    Attributes
    ----------
    run : str
        Description of the run.
    reason : str
        Why it was left out.

    Examples
    --------
    >>> from wri.integrations.domainbed import RunLeftOut
    >>> RunLeftOut("erm on toy", "not finished").reason
    'not finished'
    """

    run: str
    reason: str


class Export(NamedTuple):
    """Summary of an export.

    Attributes
    ----------
    folder : Path
        The folder.
    written : int
        Number of written runs.
    left_out : list of RunLeftOut
        Runs that were not written.
    unregistered : list of str
        Data sets without a table in DomainBed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from wri.integrations.domainbed import Export
    >>> Export(Path("out"), 3, [], ["hospitals"]).written
    3
    """

    folder: Path
    written: int
    left_out: list[RunLeftOut]
    unregistered: list[str]  # data sets without a table in DomainBed


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
    (1, [])
    """
    outcomes = list(outcomes)
    theirs = _map_names({run.dataset for run in outcomes}, names or {})
    left_out, lines = [], {}
    for run in outcomes:
        if reason := _find_obstacle(run):
            left_out.append(RunLeftOut(describe_place(run), reason))
        else:
            args = _arguments(run, theirs[run.dataset])
            lines[_hash(args)] = _records(run, args, folder)
    if not lines:
        reasons = ", ".join(sorted({each.reason for each in left_out})) or "there is none"
        raise InputError(f"no run can be exported to {shorten(folder)}: {reasons}")
    _write(folder, lines)
    unregistered = sorted({*theirs.values()} - {*DATASETS})
    return Export(folder, len(lines), left_out, unregistered)


def _map_names(ours: set[str], names: Mapping[str, str]) -> dict[str, str]:
    for name in names:
        if name not in ours:
            known = ", ".join(sorted(ours))
            raise InputError(f"--name {name}=…: there are no runs of {name!r}, but of {known}")
    mapped = {name: names.get(name, name) for name in sorted(ours)}
    for one in mapped:
        same = [name for name in mapped if mapped[name] == mapped[one]]
        if len(same) > 1:
            raise InputError(
                f"{' and '.join(same)} would both be called {mapped[one]!r}; give each data set "
                "its own name with --name"
            )
    return mapped


def _find_obstacle(run: Outcome) -> str:
    """Return why a run is left out; empty if it is not."""
    if len(run.steps) == 0:
        return "not finished"
    if run.diverged_at is not None:
        return f"diverged at step {run.diverged_at}"
    if "accuracy" not in run.measures:
        return "no accuracy was recorded, and DomainBed has no other measure"
    accuracies = run.measures["accuracy"]
    values = np.array([accuracies[split] for split in _exported(accuracies)])  # [splits, T]
    if not np.isfinite(values).all():
        at = int(run.steps[~np.isfinite(values).all(0)][0])
        return f"its accuracy is not a number at step {at}"
    return ""


def _exported(accuracies: Mapping[str, np.ndarray]) -> list[str]:
    """Return the splits that DomainBed has too; balanced rows are ours, and none where held out."""
    return [name for name in accuracies if name.endswith(("_in", "_out"))]


def _arguments(run: Outcome, dataset: str) -> dict[str, Any]:
    entry = OBJECTIVES.get(run.algorithm)
    label = run.algorithm if entry is None else SPELLED.get(run.algorithm, entry.label)
    return {
        "dataset": dataset,
        "algorithm": label,
        "test_envs": list(run.test_envs),
        "hparams_seed": run.hparams_seed,
        "trial_seed": run.trial_seed,
        "seed": run_seed(*run_place(run)),
        "holdout_fraction": HOLDOUT,
    }


def _hash(args: Mapping[str, Any]) -> str:
    text = json.dumps(args, sort_keys=True)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _records(run: Outcome, args: Mapping[str, Any], folder: Path) -> str:
    """Return the lines of `results.jsonl`."""
    common = {
        "args": {**args, "output_dir": str(folder / _hash(args))},
        "hparams": write_hparams(run.model),
    }
    accuracies = run.measures["accuracy"]
    splits = _exported(accuracies)
    lines = [
        {**common, "step": int(step)}
        | {f"{split}_acc": float(accuracies[split][t]) for split in splits}
        for t, step in enumerate(run.steps)
    ]
    return "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines)


def _write(folder: Path, lines: Mapping[str, str]) -> None:
    """Write each file completely or not at all; delete runs of an earlier export last."""
    earlier = _find_earlier(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / MARKER, _marker({*earlier, *lines}))
    for name, text in lines.items():
        (folder / name).mkdir(exist_ok=True)
        _replace(folder / name / RECORDS, text)
        _replace(folder / name / DONE, DONE)
    for name in earlier - lines.keys():
        shutil.rmtree(folder / name, ignore_errors=True)
    _replace(folder / MARKER, _marker(lines))


def _marker(names: Iterable[str]) -> str:
    return json.dumps({"written by": "wri results export", "folders": sorted(names)}) + "\n"


def _replace(path: Path, text: str) -> None:
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)


def _find_earlier(folder: Path) -> set[str]:
    """Return the runs of an earlier export; refuse anything else in the folder."""
    if not folder.exists():
        return set()
    if not folder.is_dir():
        raise InputError(f"{shorten(folder)} is a file; name a new folder")
    present = {path.name for path in folder.iterdir()}
    known = {MARKER, f"{MARKER}.new", *OF_COLLECT_RESULTS}
    earlier = _read_marker(folder / MARKER)
    foreign = sorted(present - known - earlier)
    for name in sorted(earlier & present):
        inside = folder / name
        written = (RECORDS, UNFINISHED, DONE, f"{DONE}.new")
        if inside.is_symlink() or not inside.is_dir():
            foreign.append(name)
        else:
            foreign += [f"{name}/{p.name}" for p in inside.iterdir() if p.name not in written]
    if foreign:
        raise InputError(
            f"{shorten(folder)} holds {shorten(foreign[0])}, which no export wrote; name a new "
            "folder"
        )
    return earlier & present


def _read_marker(path: Path) -> set[str]:
    try:
        names = json.loads(path.read_text(encoding="utf-8"))["folders"]
        return {name for name in names if Path(name).name == name}
    except FileNotFoundError:
        return set()
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{shorten(path)} is damaged; name a new folder") from error

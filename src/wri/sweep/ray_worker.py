"""Work of a Ray worker: train one stack and send back the results.

Nothing here needs Ray.
"""

import hashlib
import socket
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import torch

import wri
from wri.errors import InputError
from wri.sweep.data import SweepData
from wri.sweep.outcomes import Values
from wri.sweep.plan import RunSpec
from wri.training import train_stack
from wri.training.loop import Measures
from wri.training.memory import give_back_freed_memory, keep_freed_memory

REPORT_EVERY = 0.5  # seconds between two reports of a worker
SHARED = "The given NumPy array is not writable"  # rows lie in memory that all workers read


@dataclass(frozen=True, kw_only=True)
class StackJob:
    """A stack as a worker gets it, without its rows."""

    versions: Mapping[str, str]  # of the sending process
    runs: Sequence[str]  # `RunSpec.as_json` of each
    splits: Sequence[int]  # of each run, which of the splits that come with the job
    checkpoint_every: int
    measures: Measures


class RunResult(NamedTuple):
    """Results of a run for the store; parameters stay in the worker."""

    steps: np.ndarray  # [T]
    measures: Mapping[str, Values]
    diverged_at: int | None


class StackResult(NamedTuple):
    """Results that a worker sends back."""

    runs: list[RunResult]
    warnings: list[tuple[type[Warning], str]]  # that were raised while it trained


@cache
def find_versions() -> dict[str, str]:
    """Return the versions behind a result: wri with a digest of its code, PyTorch, NumPy."""
    digest = hashlib.sha256()
    folder = Path(wri.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    code = f"{wri.__version__} (code {digest.hexdigest()[:8]})"
    return {"wri": code, "torch": str(torch.__version__), "numpy": np.__version__}


def check_versions(sender: Mapping[str, str]) -> None:
    """Refuse to train for a process whose results could differ from ours."""
    for package, ours in find_versions().items():
        if ours != sender[package]:
            raise InputError(
                f"a Ray worker on {socket.gethostname()} has {package} {ours}, and the sweep has "
                f"{sender[package]}; install the same on all machines of the cluster, and start "
                "Ray there again"
            )


def train_stack_job(job: StackJob, stored: list[Any], report: Callable[[int], None]) -> StackResult:
    """Train a stack whose rows and splits were stored for all workers."""
    data, *splits = stored
    return train_job(job, data, splits, report)


def train_job(
    job: StackJob,
    data: SweepData,
    splits: Sequence[Mapping[str, np.ndarray]],
    report: Callable[[int], None],
) -> StackResult:
    """Train a stack on one thread.

    Parameters
    ----------
    job
        What to train.
    data, splits
        On which rows; they are not written to.
    report
        Called with the number of steps done, from time to time.
    """
    check_versions(job.versions)
    torch.set_num_threads(1)
    keep_freed_memory()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the sweep made the same runs, and warned
        specs = map(RunSpec.from_json, job.runs)
        runs = [spec.run(data, splits[n]) for spec, n in zip(specs, job.splits, strict=True)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        warnings.filterwarnings("ignore", SHARED)
        records = train_stack(
            runs,
            checkpoint_every=job.checkpoint_every,
            measures=job.measures,
            device="cpu",
            progress=_from_time_to_time(report),
        )
    results = [RunResult(each.steps, each.measures, each.diverged_at) for each in records]
    del runs, records
    give_back_freed_memory()  # idle workers hold no more than PyTorch
    return StackResult(results, [(each.category, str(each.message)) for each in caught])


def _from_time_to_time(report: Callable[[int], None]) -> Callable[[int, int], None]:
    last = 0.0

    def progress(step: int, of: int) -> None:
        nonlocal last
        if monotonic() >= last + REPORT_EVERY:
            last = monotonic()
            report(step)

    return progress

"""The one training loop: a stack of runs from its first step to its last checkpoint."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from math import cos, pi
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wri.errors import InputError
from wri.objectives.base import Model, Moment, Start
from wri.progress import Progress
from wri.stacked import Adam, Network, Streams, clip_norm, differentiate
from wri.training.evaluation import Evaluator
from wri.training.memory import keep_freed_memory
from wri.training.runs import Run
from wri.training.sampler import Features, Sampler, StackDraws
from wri.training.stacks import plan_stacks


class Record(NamedTuple):
    """What a run left behind."""

    steps: np.ndarray  # [T], step of each checkpoint, counted from 0, after its update
    measures: dict[str, dict[str, np.ndarray]]  # measure -> split -> [T]
    diverged_at: int | None  # step whose loss or gradient was not finite
    network: Network
    parameters: np.ndarray  # [P], for `network.packing`
    state: Any  # what the objective keeps, WRI's densities


Finished = Callable[[Sequence[int], Sequence[Record]], None]


def choose_device(device: str = "auto") -> str:
    """ "auto" is CUDA where there is one, else the CPU."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {device!r} cannot be used here: {error}") from error
    return device


def train(
    runs: Sequence[Run],
    steps: int,
    checkpoint_every: int = 10,
    measures: Sequence[str] = ("accuracy",),
    device: str = "auto",
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
    stacks: Sequence[Sequence[int]] | None = None,
    finished: Finished | None = None,
    threads: int | None = None,
) -> list[Record]:
    """Train runs of any kind: they are sorted into stacks, trained, and given back in order.

    Parameters
    ----------
    runs
        What to train.
    steps
        Steps of the predictor.
    checkpoint_every
        Measures are taken after steps 0, n, 2n, … and the last, DomainBed's convention.
    measures
        "accuracy", "loss" or both.
    device
        "auto", "cpu", "cuda", …
    progress
        Called with (steps done, steps in all) over all stacks, from the threads that train.
    stacks
        Numbers of the runs that share each stack; by `plan_stacks` when not given.
    finished
        Called with each stack's numbers and records when it is done, one stack at a time; the
        records are not kept and none are given back.
    threads
        Of each stack on the CPU, so that sums are taken in the same order whatever trains beside
        it; shared out among the stacks when not given.

    Notes
    -----
    On the CPU stacks train side by side, a thread each; PyTorch's number of threads is changed
    meanwhile and given back. On Linux the process keeps freed memory from then on.
    """
    if stacks is None:
        stacks = plan_stacks(runs)
    board = _Board(len(stacks) * steps, progress)
    records: list[Record | None] = [None] * len(runs)
    one_at_a_time = Lock()

    def work(stack: Sequence[int]) -> None:
        trained = train_stack(
            [runs[n] for n in stack],
            steps,
            checkpoint_every,
            measures,
            device,
            dtype,
            lambda step, of: board.advance(),
        )
        if finished is not None:
            with one_at_a_time:
                finished(stack, trained)
            return
        for n, record in zip(stack, trained, strict=True):
            records[n] = record

    _side_by_side(work, stacks, board, 1 if choose_device(device) != "cpu" else None, threads)
    return [record for record in records if record is not None]


class _Board:
    """Where stacks that train side by side report a step, and learn what has changed."""

    def __init__(self, steps: int, progress: Progress | None) -> None:
        self.stopped = False
        self.share = torch.get_num_threads()  # threads for each stack
        self._steps, self._done = steps, 0
        self._progress, self._lock = progress, Lock()

    def advance(self) -> None:
        if self.stopped:
            raise KeyboardInterrupt
        if torch.get_num_threads() != self.share:  # PyTorch counts for each thread that calls
            torch.set_num_threads(self.share)
        with self._lock:
            self._done += 1
            if self._progress is not None:
                self._progress(self._done, self._steps)


def _side_by_side(
    work: Callable[[Sequence[int]], None],
    stacks: Sequence[Sequence[int]],
    board: _Board,
    most: int | None,
    each: int | None,
) -> None:
    """Several stacks at a time, each on its share of the processor's threads.

    The operations of a step are small: two stacks on one thread each take less time than one
    after the other on two. The last ones to train share all threads.
    """
    threads = torch.get_num_threads()
    workers = min(len(stacks), most or max(1, threads // (each or 1)))
    if workers < 2 and each is None:
        for stack in stacks:
            work(stack)
        return

    def share(left: int) -> int:
        return each or max(1, threads // max(1, min(workers, left)))

    board.share = share(len(stacks))
    torch.set_num_threads(board.share)
    try:
        with ThreadPoolExecutor(workers) as pool:
            jobs = [pool.submit(work, stack) for stack in stacks]
            try:
                for done, job in enumerate(as_completed(jobs), 1):
                    job.result()
                    board.share = share(len(jobs) - done)
            except BaseException:  # an error or Ctrl-C: the others end at their next step
                board.stopped = True
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    finally:
        torch.set_num_threads(threads)


def train_stack(
    runs: Sequence[Run],
    steps: int,
    checkpoint_every: int = 10,
    measures: Sequence[str] = ("accuracy",),
    device: str = "auto",
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> list[Record]:
    """Train runs of one bucket together; see `train`."""
    if steps < 1 or checkpoint_every < 1:
        raise InputError(
            f"steps and checkpoint_every must be at least 1, not {steps} and {checkpoint_every}"
        )
    if not runs:
        raise InputError("there are no runs to train")
    if len({run.bucket for run in runs}) != 1:
        raise InputError("these runs cannot share a stack; let plan_stacks() sort them")
    keep_freed_memory()
    stack = _Stack(runs, measures, choose_device(device), dtype)
    for step in stack.train(steps):
        if step % checkpoint_every == 0 or step == steps - 1:
            stack.checkpoint(step)
        if progress is not None:
            progress(step + 1, steps)
    return stack.records()


class _Stack:
    """Everything that belongs to the runs of one stack while they train."""

    def __init__(
        self, runs: Sequence[Run], measures: Sequence[str], device: str, dtype: torch.dtype
    ) -> None:
        first, seeds = runs[0], [run.seed for run in runs]
        self.runs = runs
        self.measures = measures
        self.objective = first.objective
        self.hyper = {
            name: torch.tensor([run.hyper[name] for run in runs], dtype=dtype, device=device)
            for name in first.hyper
        }
        self.features = Features(runs, dtype, device)
        sizes = [int(run.hyper["batch_size"]) for run in runs]
        self.sampler = Sampler(runs, self.features, sizes, "batches", dtype)
        self.draws = StackDraws(runs, self.features, dtype)
        self.random = Streams(seeds, "objective", dtype, device)

        network = first.network
        self.flat = torch.as_tensor(network.initial(seeds), dtype=dtype, device=device)
        self.model = Model(network, self.flat.detach().requires_grad_(), first.bank.loss)
        self.adam = Adam.initial(self.flat)
        start = Start(seeds, len(first.train), network, dtype, device, self.draws)
        self.state = self.objective.initial(start)
        self.resets_at = self.objective.resets_at(self.hyper)
        self.clipped = bool(self.hyper["clip_norm"].isfinite().any())

        self.alive = torch.ones(len(runs), dtype=torch.bool, device=device)
        self.all_alive = True
        self.diverged_at: list[int | None] = [None] * len(runs)
        self.evaluate = Evaluator(runs, measures, dtype, device) if first.evaluate else None
        self.steps: list[int] = []
        self.measured: list[np.ndarray] = []  # [M, R, S] each

    def train(self, steps: int) -> Iterator[int]:
        for step, rows in enumerate(self.sampler.stream(steps)):
            self._reset(step)
            moment = Moment(step, self.hyper, self.random)
            rate = self.hyper["learning_rate"] * self._rate_left(step / steps)
            batch = self.features.batch(rows, self.sampler.weight)
            losses, self.state = self.objective.loss(self.model, batch, self.state, moment)
            gradient = differentiate(losses, self.model.flat)
            with torch.no_grad():
                self._freeze_diverged(losses, gradient, step)
                if self.clipped:
                    gradient = clip_norm(gradient, self.hyper["clip_norm"])
                self.adam.step(
                    self.flat,
                    gradient,
                    rate,
                    self.hyper["weight_decay"],
                    None if self.all_alive else self.alive,
                )
            self.state = self.objective.after_step(self.model, self.state, moment, self.draws)
            yield step

    def _rate_left(self, done: float) -> Tensor:  # [R]
        """Share of the step size when `done` of the run is behind it."""
        final = self.hyper["final_rate"]
        return final + (1 - final) * (1 + cos(pi * done)) / 2

    def _reset(self, step: int) -> None:
        if self.resets_at is not None and step > 0:
            now = self.resets_at == step
            if now.any():
                self.adam.reset(now)

    def _freeze_diverged(self, losses: Tensor, gradient: Tensor, step: int) -> None:
        if self.all_alive and (losses.sum() + gradient.sum()).isfinite():
            return
        finite = losses.isfinite() & gradient.isfinite().all(1)
        for run in (self.alive & ~finite).nonzero()[:, 0].tolist():
            self.diverged_at[run] = step
        self.alive &= finite
        self.all_alive = bool(self.alive.all())

    def checkpoint(self, step: int) -> None:
        self.steps.append(step)
        if self.evaluate is not None:
            values = self.evaluate(self.model)
            values[:, ~self.alive.cpu().numpy()] = np.nan
            self.measured.append(values)

    def records(self) -> list[Record]:
        steps = np.array(self.steps)
        parameters = self.flat.cpu().numpy()
        measured = np.stack(self.measured) if self.measured else None  # [T, M, R, S]
        return [
            Record(
                steps,
                {} if measured is None else self._measures(measured[:, :, r]),
                self.diverged_at[r],
                self.model.network,
                parameters[r].copy(),
                self.objective.state_of(self.state, r),
            )
            for r in range(len(self.runs))
        ]

    def _measures(self, values: np.ndarray) -> dict[str, dict[str, np.ndarray]]:  # [T, M, S]
        first = self.runs[0]
        return {
            measure: {split: values[:, m, s] for s, split in enumerate(first.evaluate)}
            for m, measure in enumerate(self.measures)
        }

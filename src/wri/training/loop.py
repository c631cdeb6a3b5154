"""The training loop: a stack of runs from its first step to its last checkpoint."""

from collections.abc import Iterator, Sequence
from math import cos, pi
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from wri.errors import InputError
from wri.measures import applicable_measures
from wri.objectives.base import Model, Start, StepContext
from wri.progress import Progress
from wri.stacked import Adam, Streams, clip_norm, differentiate
from wri.training.evaluation import Evaluator
from wri.training.runs import Record, Run
from wri.training.sampler import Sampler, StackDraws, StackedRows
from wri.training.solver import solve_stack

Measures = Sequence[str] | Literal["all"] | None
"""Names in `wri.measures`, "all" that the targets allow, or None for the first of these."""


def choose_device(device: str = "auto") -> str:
    """Return the PyTorch device to use.

    Parameters
    ----------
    device : str, default="auto"
        Device; "auto" is CUDA if it is available, otherwise the CPU.

    Returns
    -------
    device : str
        The device.

    Raises
    ------
    InputError
        If the device cannot be used.

    Examples
    --------
    >>> from wri.training import choose_device
    >>> choose_device("cpu")
    'cpu'
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {device!r} cannot be used here: {error}") from error
    return device


def train_stack(
    runs: Sequence[Run],
    *,
    checkpoint_every: int = 10,
    measures: Measures = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[Record]:
    """Train runs of one bucket together, or solve them, in the calling thread.

    Parameters
    ----------
    runs : sequence of Run
        Runs with the same `bucket`.
    checkpoint_every : int, default=10
        Steps between checkpoints; measured after steps 0, n, 2n, … and the last.
    measures : sequence of str, "all" or None, default=None
        Names in `wri.measures`, or "all" that the targets allow. None: the first of these.
    device : str, default="auto"
        PyTorch device.
    progress : callable or None, default=None
        Called with (steps done, steps in all).

    Returns
    -------
    records : list of Record
        One per run.

    Raises
    ------
    InputError
        If the runs cannot share a stack.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.training import Bank, ModelSpec, Run, train_stack
    >>> bank = Bank(np.arange(8.0)[:, None] / 8, np.array([0, 1] * 4))
    >>> runs = [Run(ModelSpec.of("erm", steps=5), bank, [np.arange(8)], seed=s) for s in (0, 1)]
    >>> [record.steps.tolist() for record in train_stack(runs)]
    [[0, 4], [0, 4]]
    """
    if checkpoint_every < 1:
        raise InputError(f"checkpoint_every must be at least 1, not {checkpoint_every}")
    if not runs:
        raise InputError("there are no runs to train")
    if len({run.bucket for run in runs}) != 1:
        raise InputError("these runs cannot share a stack; let plan_stacks() sort them")
    if measures is None or measures == "all":
        possible = applicable_measures(runs[0].bank.n_classes)
        measures = possible if measures == "all" else possible[:1]
    steps = runs[0].spec.last_step
    if runs[0].spec.is_solved:
        return solve_stack(runs, measures, choose_device(device), progress)
    stack = _Stack(runs, measures, choose_device(device))
    for step in stack.train():
        if step % checkpoint_every == 0 or step == steps - 1:
            stack.checkpoint(step)
        if progress is not None:
            progress(step + 1, steps)
    return stack.records()


class _Stack:
    """State of the runs of one stack during training."""

    def __init__(self, runs: Sequence[Run], measures: Sequence[str], device: str) -> None:
        first, seeds = runs[0], [run.seed for run in runs]
        dtype = first.dtype
        self.runs = runs
        self.measures = measures
        self.objective = first.objective
        self.hyper = {
            name: torch.tensor([run.hyper[name] for run in runs], dtype=dtype, device=device)
            for name in first.hyper
        }
        self.features = StackedRows(runs, device)
        sizes = [int(run.hyper["batch_size"]) for run in runs]
        self.sampler = Sampler(runs, self.features, sizes, "batches", dtype)
        self.draws = StackDraws(runs, self.features, dtype)
        self.random = Streams(seeds, "objective", dtype, device)

        network = first.network
        self.flat = torch.as_tensor(network.initial(seeds), dtype=dtype, device=device)
        self.model = Model(network, self.flat.detach().requires_grad_(), first.bank.loss)
        self.adam = Adam.initial(self.flat)
        start = Start(
            seeds=seeds,
            environments=len(first.train),
            network=network,
            dtype=dtype,
            device=device,
            draws=self.draws,
        )
        self.state = self.objective.initial(start)
        self.resets_at = self.objective.resets_at(self.hyper)
        self.clipped = bool(self.hyper["clip_norm"].isfinite().any())

        self.alive = torch.ones(len(runs), dtype=torch.bool, device=device)
        self.all_alive = True
        self.diverged_at: list[int | None] = [None] * len(runs)
        self.evaluate = Evaluator(runs, measures, device) if first.evaluate else None
        self.steps: list[int] = []
        self.measured: list[np.ndarray] = []  # [M, R, S] each

    def train(self) -> Iterator[int]:
        spec = self.runs[0].spec
        for step, drawn in enumerate(self.sampler.stream(spec.last_step)):
            self._reset(step)
            context = StepContext(step, self.hyper, self.random)
            rate = self.hyper["learning_rate"] * self._rate_left(step / spec.steps)
            batch = self.features.batch(drawn.rows)
            batch = batch._replace(weight=drawn.weight, indices=drawn.indices)
            losses, self.state = self.objective.loss(self.model, batch, self.state, context)
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
            self.state = self.objective.after_step(self.model, self.state, context, self.draws)
            yield step

    def _rate_left(self, done: float) -> Tensor:  # [R]
        """Return the share of the step size after the share `done` of the run."""
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
        self._freeze(self._has_finite_parameters(), step - 1)  # the last update diverged
        self._freeze(losses.isfinite() & gradient.isfinite().all(1), step)

    def _freeze(self, finite: Tensor, step: int) -> None:
        for run in (self.alive & ~finite).nonzero()[:, 0].tolist():
            self.diverged_at[run] = step
        self.alive &= finite
        self.all_alive = bool(self.alive.all())

    def _has_finite_parameters(self) -> Tensor:  # [R]
        return self.flat.isfinite().all(1)

    def checkpoint(self, step: int) -> None:
        self._freeze(self._has_finite_parameters(), step)
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
                steps=steps,
                measures={} if measured is None else self._measures(measured[:, :, r]),
                diverged_at=self.diverged_at[r],
                network=self.runs[r].network,
                parameters=parameters[r].copy(),
                state=self.objective.state_of(self.state, r),
            )
            for r in range(len(self.runs))
        ]

    def _measures(self, values: np.ndarray) -> dict[str, dict[str, np.ndarray]]:  # [T, M, S]
        first = self.runs[0]
        return {
            measure: {split: values[:, m, s] for s, split in enumerate(first.evaluate)}
            for m, measure in enumerate(self.measures)
        }

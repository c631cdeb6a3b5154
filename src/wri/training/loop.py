"""The training loop: a stack of runs from its first step to its last checkpoint."""

from collections.abc import Iterator, Sequence
from math import cos, pi

import numpy as np
import torch
from torch import Tensor

from wri.objectives.base import Model, StepContext
from wri.progress import Progress
from wri.stacked import Adam, clip_norm, differentiate
from wri.training.evaluation import Evaluator, by_split
from wri.training.runs import Record, Run
from wri.training.sampler import Sampler, StackedRows, start_objective


def train_in_steps(
    runs: Sequence[Run],
    measures: Sequence[str],
    device: str,
    checkpoint_every: int,
    progress: Progress | None,
) -> list[Record]:
    """Train runs that may share a stack; measure every few steps and after the last."""
    stack, steps = _Stack(runs, measures, device), runs[0].spec.last_step
    for step in stack.train():
        if step % checkpoint_every == 0 or step == steps - 1:
            stack.checkpoint(step)
        if progress is not None:
            progress(step + 1, steps)
    return stack.records()


class _Stack:
    """State of the runs of one stack during training."""

    def __init__(self, runs: Sequence[Run], measures: Sequence[str], device: str) -> None:
        first, dtype = runs[0], runs[0].dtype
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

        network = first.network
        initial = network.initial([run.seed for run in runs])
        self.flat = torch.as_tensor(initial, dtype=dtype, device=device)
        self.model = Model(network, self.flat.detach().requires_grad_(), first.bank.loss)
        self.adam = Adam.initial(self.flat)
        self.state, self.draws, self.random = start_objective(runs, self.features, dtype)
        self.resets_at = self.objective.resets_at(self.hyper)
        self.clipped = bool(self.hyper["clip_norm"].isfinite().any())

        self.alive = torch.ones(len(runs), dtype=torch.bool, device=device)
        self.all_alive = True
        self.diverged_at: list[int | None] = [None] * len(runs)
        self.evaluate = Evaluator(runs, measures, device) if first.evaluate else None
        self.steps: list[int] = []
        self.measured: list[np.ndarray] = []  # [M, R, S] each

    def train(self) -> Iterator[int]:
        spec, final = self.runs[0].spec, self.hyper["final_rate"]
        for step, drawn in enumerate(self.sampler.stream(spec.last_step)):
            self._reset(step)
            context = StepContext(step, self.hyper, self.random)
            left = (1 + cos(pi * (step / spec.steps))) / 2  # along half a cosine
            rate = self.hyper["learning_rate"] * (final + (1 - final) * left)
            batch = self.features.drawn(drawn)
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
                measures={}
                if measured is None
                else by_split(measured[:, :, r], self.measures, tuple(self.runs[r].evaluate)),
                diverged_at=self.diverged_at[r],
                network=self.runs[r].network,
                parameters=parameters[r].copy(),
                state=self.objective.state_of(self.state, r),
            )
            for r in range(len(self.runs))
        ]

"""What `fit` trains: candidates by leave-one-environment-out, then the chosen one on all.

    chosen = argmin over candidates of mean_e loss on environment e, trained on the others

All candidates times all left-out environments are one call of `train`. A run standardises by the
rows that it learns from, so a left-out environment is new in every respect. No row outside `fit` is
ever seen.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from wri.errors import InputError
from wri.progress import Progress
from wri.stacked import generator
from wri.training import Bank, ModelSpec, Record, Run, train
from wri.training.runs import FEWEST_ROWS

CHECKPOINTS = 20  # looked at for early stopping
FEWEST_SPLIT = 25  # rows of an environment that can spare some
FEWEST_HELD = 5  # rows that are worth holding out
MOST_LIGHT = 1.5  # times the share of rows, where those held out weigh little


class Rows(NamedTuple):
    """Row numbers of each environment."""

    fitted: list[np.ndarray]  # what is learned from
    held_out: list[np.ndarray]  # what is not; empty where an environment is small

    @property
    def calibrating(self) -> list[np.ndarray]:
        """Held-out rows; those learned from where none could be spared."""
        pairs = zip(self.held_out, self.fitted, strict=True)
        return [held if len(held) else fitted for held, fitted in pairs]


def hold_out(
    environments: Sequence[np.ndarray],
    contents: np.ndarray,
    weights: np.ndarray | None,
    share: float,
    seed: int,
) -> Rows:
    """Put a share of every environment's rows aside, drawn by lot.

    Rows with the same contents share a lot: a row that comes twice stands on one side only, and a
    row that comes twice counts like a row of weight two.
    """
    random = generator(seed, "held-out rows")
    held = np.zeros(len(contents), bool)
    for rows in environments:
        distinct, place = np.unique(contents[rows], axis=0, return_inverse=True)
        lots = random.permutation(len(distinct))[place]
        n = len(distinct)
        weight = np.bincount(lots, None if weights is None else weights[rows])
        middle = (weight.cumsum() - weight / 2) / weight.sum()
        # neither a few heavy rows nor many light ones
        chosen = (middle < share) & (np.arange(n) < min(share * n * MOST_LIGHT, n - FEWEST_ROWS))
        if n >= FEWEST_SPLIT and chosen.sum() >= FEWEST_HELD:
            held[rows] = chosen[lots]
    return Rows([rows[~held[rows]] for rows in environments], [r[held[r]] for r in environments])


class Chosen(NamedTuple):
    """The specification to train on all environments."""

    spec: ModelSpec
    losses: np.ndarray | None  # [C, E], of each candidate on each left-out environment


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that the runs of one `fit` have in common."""

    bank: Bank
    rows: Rows
    seed: int
    device: str

    @property
    def n_environments(self) -> int:
        return len(self.rows.fitted)

    @property
    def can_leave_one_out(self) -> bool:
        """Whether an environment can be left out and two still be compared."""
        return self.n_environments > 2

    def complete(self, spec: ModelSpec) -> ModelSpec:
        """A specification for the size of all environments, so that all runs have its numbers."""
        learned, weights = np.concatenate(self.rows.fitted), self.bank.weights
        weight = len(learned) if weights is None else weights[learned].sum()
        largest = max(len(own) for own in self.rows.fitted)
        return spec.complete(self.bank.features.shape[1], float(weight), largest)

    def run(
        self,
        spec: ModelSpec,
        environments: Sequence[int],
        evaluate: Mapping[str, np.ndarray] | None = None,
    ) -> Run:
        with warnings.catch_warnings():  # said once, with the environment's name, by `fit`
            warnings.filterwarnings("ignore", "environment .* holds a single class")
            rows = [self.rows.fitted[e] for e in environments]
            return Run(spec, self.bank, rows, seed=self.seed, evaluate=evaluate or {})

    def train(self, runs: Sequence[Run], every: int, progress: Progress) -> list[Record]:
        return train(
            runs,
            checkpoint_every=every,
            measures=("loss",),
            device=self.device,
            progress=progress,
            side_by_side=False,  # a library leaves the process's threads and memory as they are
        )

    def left_out_losses(
        self, specs: Sequence[ModelSpec], every: int, progress: Progress
    ) -> tuple[np.ndarray, np.ndarray]:
        """Losses `[C, E, T]` on environments that a candidate was not trained on, and steps."""
        runs = []
        for left_out in range(self.n_environments):
            others = [e for e in range(self.n_environments) if e != left_out]
            rows = np.concatenate([self.rows.fitted[left_out], self.rows.held_out[left_out]])
            runs += [self.run(spec, others, {"left out": rows}) for spec in specs]
        records = self.train(runs, every, progress)
        losses = np.stack([record.measures["loss"]["left out"] for record in records])  # [E·C, T]
        losses = losses.reshape(self.n_environments, len(specs), -1)
        return losses.swapaxes(0, 1), records[0].steps

    def held_out_losses(
        self, spec: ModelSpec, every: int, progress: Progress
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same for one candidate trained on all, on the held-out rows of each: `[1, E, T]`."""
        every_one = range(self.n_environments)
        splits = {str(e): self.rows.calibrating[e] for e in every_one}
        (record,) = self.train([self.run(spec, every_one, splits)], every, progress)
        return np.stack([record.measures["loss"][s] for s in splits])[None], record.steps


def choose(
    problem: Problem, specs: Sequence[ModelSpec], early_stopping: bool, progress: Progress
) -> Chosen:
    """The candidate, and with early stopping the step, with the least mean loss.

    With fewer than three environments there is no environment to leave out: the first candidate is
    taken, and its step by the loss on held-out rows.
    """
    leave_out = problem.can_leave_one_out
    if not (early_stopping or (leave_out and len(specs) > 1)):
        return Chosen(specs[0], None)
    last = specs[0].last_step
    every = max(1, last // CHECKPOINTS) if early_stopping else last
    if leave_out:
        losses, steps = problem.left_out_losses(specs, every, progress)
    else:
        specs = specs[:1]
        losses, steps = problem.held_out_losses(specs[0], every, progress)
    mean = np.nan_to_num(losses.mean(1), nan=np.inf, posinf=np.inf)  # [C, T]
    for c, spec in enumerate(specs):
        # before a penalty has its full weight, what is trained is something else
        mean[c, (steps < spec.full_penalty_at) & (steps < steps[-1])] = np.inf
    if not early_stopping:
        mean[:, :-1] = np.inf
    if not np.isfinite(mean).any():
        raise InputError("training diverged for every candidate; lower learning_rate")
    best, at = np.unravel_index(mean.argmin(), mean.shape)
    stopped = int(steps[at]) + 1
    spec = specs[best] if stopped == last else replace(specs[best], stop_after=stopped)
    return Chosen(spec, losses[:, :, at] if leave_out else None)

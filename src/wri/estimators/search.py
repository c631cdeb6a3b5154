"""What `fit` trains: candidates by leave-one-environment-out, then the chosen one on all.

    chosen = argmin over candidates of mean_e loss on environment e, trained on the others

All candidates times all left-out environments are one call of `train`. Inputs (and the target of a
regression) are standardised by the rows that a run learns from, so a left-out environment is new
in every respect. No row outside `fit` is ever seen.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from wri.errors import InputError
from wri.estimators.defaults import PRESET, WHOLE
from wri.objectives import Objective
from wri.progress import Progress
from wri.rows import Scaling
from wri.stacked import SQUARED, Loss, generator
from wri.training import Bank, Record, Run, train
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


class Prepared(NamedTuple):
    """A bank in units that some rows gave."""

    bank: Bank
    inputs: Scaling
    target: Scaling


class Chosen(NamedTuple):
    hyper: Mapping[str, float]
    steps: int
    losses: np.ndarray | None  # [C, E], of each candidate on each left-out environment


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that the runs of one `fit` have in common."""

    X: np.ndarray
    y: np.ndarray  # class numbers, or numbers
    loss: Loss
    n_classes: int | None
    weights: np.ndarray | None
    rows: Rows
    objective: Objective
    hidden: tuple[int, ...]
    steps: int
    seed: int
    device: str

    @property
    def n_environments(self) -> int:
        return len(self.rows.fitted)

    def prepare(self, environments: Sequence[int]) -> Prepared:
        """The bank in units of the rows that are learned from in these environments."""
        learned = np.concatenate([self.rows.fitted[e] for e in environments])
        weights = None if self.weights is None else self.weights[learned]
        inputs = Scaling.of(self.X[learned], weights)
        target = Scaling(np.zeros(()), np.ones(()))
        if self.loss is SQUARED:
            target = Scaling.of(self.y[learned], weights)
        y = target.apply(self.y) if self.loss is SQUARED else self.y
        bank = Bank(inputs.apply(self.X), y, self.loss, self.n_classes, self.weights)
        return Prepared(bank, inputs, target)

    def run(
        self,
        bank: Bank,
        environments: Sequence[int],
        hyper: Mapping[str, float],
        evaluate: Mapping[str, np.ndarray],
    ) -> Run:
        with warnings.catch_warnings():  # said once, with the environment's name, by `fit`
            warnings.filterwarnings("ignore", "environment .* holds a single class")
            train_rows = [self.rows.fitted[e] for e in environments]
            return Run(
                self.objective, bank, train_rows, hyper, self.seed, evaluate, self.hidden, PRESET
            )

    def train(
        self, runs: Sequence[Run], steps: int, every: int, progress: Progress
    ) -> list[Record]:
        return train(
            runs,
            steps,
            every,
            ("loss",),
            self.device,
            # small tables cost no more in double precision, and depend less on their rows' order
            torch.float64 if self._small else torch.float32,
            progress,
            threads=1,  # a stack: results do not depend on the machine's number of processors
        )

    @property
    def _small(self) -> bool:
        return sum(len(rows) for rows in self.rows.fitted) <= WHOLE

    def left_out_losses(
        self, candidates: Sequence[Mapping[str, float]], every: int, progress: Progress
    ) -> tuple[np.ndarray, np.ndarray]:
        """Losses `[C, E, T]` on environments that a candidate was not trained on, and steps."""
        runs, units = [], []
        for left_out in range(self.n_environments):
            others = [e for e in range(self.n_environments) if e != left_out]
            prepared = self.prepare(others)
            rows = np.concatenate([self.rows.fitted[left_out], self.rows.held_out[left_out]])
            units.append(float(prepared.target.scale) ** 2)
            runs += [self.run(prepared.bank, others, c, {"left out": rows}) for c in candidates]
        records = self.train(runs, self.steps, every, progress)
        losses = np.stack([record.measures["loss"]["left out"] for record in records])  # [E·C, T]
        losses = losses.reshape(self.n_environments, len(candidates), -1)
        losses = losses * np.array(units)[:, None, None]  # squared errors in y's own unit
        return losses.swapaxes(0, 1), records[0].steps

    def held_out_losses(
        self, hyper: Mapping[str, float], every: int, progress: Progress
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same for one candidate trained on all, on the held-out rows of each: `[1, E, T]`."""
        every_one = range(self.n_environments)
        splits = {str(e): self.rows.calibrating[e] for e in every_one}
        run = self.run(self.prepare(every_one).bank, every_one, hyper, splits)
        (record,) = self.train([run], self.steps, every, progress)
        return np.stack([record.measures["loss"][s] for s in splits])[None], record.steps


def choose(
    problem: Problem,
    candidates: Sequence[Mapping[str, float]],
    early_stopping: bool,
    progress: Progress,
) -> Chosen:
    """The candidate, and with early stopping the step, with the least mean loss.

    With fewer than three environments there is no environment to leave out: the first candidate is
    taken, and its step by the loss on held-out rows.
    """
    across = problem.n_environments > 2
    if not (early_stopping or (across and len(candidates) > 1)):
        return Chosen(candidates[0], problem.steps, None)
    every = max(1, problem.steps // CHECKPOINTS) if early_stopping else problem.steps
    if across:
        losses, steps = problem.left_out_losses(candidates, every, progress)
    else:
        candidates = candidates[:1]
        losses, steps = problem.held_out_losses(candidates[0], every, progress)
    mean = np.nan_to_num(losses.mean(1), nan=np.inf, posinf=np.inf)  # [C, T]
    for c, hyper in enumerate(candidates):
        # before a penalty has its full weight, what is trained is something else
        in_force = hyper.get("anneal_steps", 0) + hyper.get("ramp_steps", 0)
        mean[c, (steps < in_force) & (steps < steps[-1])] = np.inf
    if not early_stopping:
        mean[:, :-1] = np.inf
    if not np.isfinite(mean).any():
        raise InputError("training diverged for every candidate; lower learning_rate")
    best, at = np.unravel_index(mean.argmin(), mean.shape)
    return Chosen(candidates[best], int(steps[at]) + 1, losses[:, :, at] if across else None)

"""Figure C.1: with exact densities of Φ(x) WRI discards the spurious weight, ERM does not.

The model is f(x) = g·(a·x_inv + b·x_spu) on the regression of equation 5; the density is that of
the scalar feature Φ(x) = a·x_inv + b·x_spu, exact and Gaussian, and changes with a and b. (The
paper's two features scaled by one weight each have no density once a weight is zero.)

Chosen here, since the paper gives no numbers: three environments, because two give one equation for
two weights and leave a curve of solutions; they differ in the invariant distribution and in the
spurious slope. 10,000 rows per environment, full batches, Adam with step size 0.01, the gap scaled
as (g/(d̄·l̄))², which does not change with the unit of Φ, and λ = 10. Starts: a = b = ½ and a = 0,
b = 1, with g = 1. The lines are g·a and g·b.

The regression on one linear feature is that of appendices C and D:

    Φ(x) = a·x_inv + b·x_spu,   f(x) = g·Φ(x)

on the linear-Gaussian data of equation 5 with one invariant and one spurious dimension. Φ is
Gaussian in every environment, so its density is exact and changes with a and b. Runs differ in
rows, start and λ and are minimised together; a model is a, b, g per run, `[R, 3]`.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from math import pi
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from wri.densities import Bounded
from wri.objectives.functional import wri_penalty
from wri.objectives.weighted_risks import Scaling
from wri.paper.experiments import ExperimentTask
from wri.paper.experiments.panels import draw_band
from wri.paper.result import Result, ResultCell
from wri.paper.simulations import LinearGaussian
from wri.progress import Progress, part
from wri.report import style
from wri.stacked import SQUARED, Adam, clip_norm, differentiate, generator

LEARNING_RATE = 0.01  # of the model and of the densities
CLIP = 10.0  # norm of a gradient
DENSITY_STEPS = 2  # after each step of the model
PENALTY_WEIGHT, LOG_WEIGHT = 100.0, 0.1  # λ_d and β of learned densities
BOUNDS = {"min_density": 1e-3, "max_density": 10.0}

LogDensities = Callable[[Tensor, Tensor], Tensor]
"""Of a model `[R, 3]` and features `[R, E, B]`: log d_e there, `[R, E, E, B]`."""


def coupling(
    mean: Sequence[float], sd: Sequence[float], slope: Sequence[float], noise: Sequence[float]
) -> LinearGaussian:
    """Return x_inv ~ N(mean, sd²), y = x_inv + N(0, 1), x_spu = slope·y + N(0, noise²)."""
    return LinearGaussian(
        weights=np.ones(1),
        noise_sd=1.0,
        invariant_mean=np.array(mean)[:, None],
        invariant_covariance=np.array(sd)[:, None, None] ** 2,
        spurious_slope=np.array(slope)[:, None],
        spurious_covariance=np.array(noise)[:, None, None] ** 2,
    )


class FeatureBatch(NamedTuple):
    """Rows of all environments of all runs."""

    x: Tensor  # [R, E, n, 2]
    y: Tensor  # [R, E, n]

    @classmethod
    def sample(cls, setting: LinearGaussian, n: int, seeds: Sequence[int]) -> "FeatureBatch":
        drawn = [setting.sample(n, seed) for seed in seeds]
        x, y = (np.stack([[getattr(e, k) for e in each] for each in drawn]) for k in "xy")
        return cls(torch.tensor(x), torch.tensor(y))

    def batches(self, size: int, seeds: Sequence[int], purpose: str) -> Iterator["FeatureBatch"]:
        """Yield `size` rows of each environment at a time, drawn by each run's own seed."""
        environments, n = self.y.shape[1:]
        generators = [generator(seed, purpose) for seed in seeds]
        while True:
            if size >= n:
                yield self
                continue
            drawn = np.stack([g.integers(n, size=(environments, size)) for g in generators])
            rows = torch.from_numpy(drawn)
            x = self.x.gather(2, rows[..., None].expand(-1, -1, -1, 2))
            yield FeatureBatch(x, self.y.gather(2, rows))


def features(model: Tensor, x: Tensor) -> Tensor:  # [R, 3], [R, E, B, 2] -> [R, E, B]
    return (x @ model[:, None, :2, None])[..., 0]


def losses(model: Tensor, rows: FeatureBatch) -> Tensor:  # [R, E, B]
    outputs = model[:, 2, None, None] * features(model, rows.x)
    return SQUARED.per_example(outputs[..., None], rows.y)


def weights_of(model: Tensor) -> Tensor:  # [R, 3] -> [R, 2]
    """Return the weights of x_inv and x_spu in the prediction: g·a and g·b."""
    return model[:, 2:] * model[:, :2]


def exact_log_densities(setting: LinearGaussian) -> LogDensities:
    """Return the Gaussian density of Φ(x) in each environment, at the current a and b."""
    moments = (setting.joint_moments(e) for e in range(setting.environments))
    means, covariances = (torch.tensor(np.stack(each)) for each in zip(*moments, strict=True))

    def log_densities(model: Tensor, phi: Tensor) -> Tensor:
        ab = model[:, :2]
        mean = (ab @ means.T)[..., None, None]  # means [E, 2], covariances [E, 2, 2]
        variance = torch.einsum("rp,epq,rq->re", ab, covariances, ab)[..., None, None]
        return -0.5 * ((phi[:, None] - mean).square() / variance + (2 * pi * variance).log())

    return log_densities


class LearnedDensities:
    """One bounded network on Φ(x) per run and environment, learned along with the model.

    The step's loss is λ_d · penalty + β · mean_e E_e[−log d_e], as in `wri.objectives.wri`.
    """

    def __init__(
        self,
        rows: FeatureBatch,
        seeds: Sequence[int],
        scaling: Scaling = "none",
        hidden: int = 16,
        batch_size: int = 512,
    ) -> None:
        self.scaling, self.form, self._environments = scaling, Bounded(hidden), rows.y.shape[1]
        self.flat = torch.tensor(self.form.initial(seeds, self._environments, 1))
        self._adam = Adam.initial(self.flat)
        self._batches = rows.batches(batch_size, seeds, "density batches")
        runs = torch.ones(len(seeds), dtype=self.flat.dtype)
        self._hyper = {name: bound * runs for name, bound in BOUNDS.items()}

    def __call__(self, model: Tensor, phi: Tensor) -> Tensor:
        return self._at(self.flat, phi)

    def _at(self, flat: Tensor, phi: Tensor) -> Tensor:
        return self.form.log_density(flat, phi[..., None], self._environments, self._hyper)

    def update(self, model: Tensor) -> None:
        for _ in range(DENSITY_STEPS):
            rows = next(self._batches)
            flat = self.flat.detach().clone().requires_grad_()
            logs = self._at(flat, features(model, rows.x))
            penalty = wri_penalty(losses(model, rows), logs, scaling=self.scaling)
            likelihood = logs.diagonal(dim1=1, dim2=2).mean((1, 2))
            loss = PENALTY_WEIGHT * penalty - LOG_WEIGHT * likelihood
            self._adam.step(self.flat, clip_norm(differentiate(loss, flat), CLIP), *_rates(model))


def descend(
    rows: FeatureBatch,
    seeds: Sequence[int],
    start: Tensor,  # [R, 3]
    penalty_weight: float,  # λ
    densities: LogDensities,
    scaling: Scaling,
    batch_size: int,
) -> Iterator[Tensor]:
    """Yield models after 1, 2, 3, … steps of Adam on risk + λ · penalty, with the given densities.

    No gradient flows through the densities, as in Algorithm 1; learned ones are updated after each
    step, and there is no penalty before their first update.
    """
    model = start.clone()
    adam = Adam.initial(model)
    learned = densities if isinstance(densities, LearnedDensities) else None
    in_force = learned is None and penalty_weight > 0
    for batch in rows.batches(batch_size, seeds, "batches"):
        moving = model.detach().clone().requires_grad_()
        each = losses(moving, batch)
        loss = each.mean((1, 2))
        if in_force:
            with torch.no_grad():
                logs = densities(model, features(model, batch.x))
            loss = loss + penalty_weight * wri_penalty(each, logs, scaling=scaling)
        adam.step(model, clip_norm(differentiate(loss, moving), CLIP), *_rates(model))
        if learned is not None:
            learned.update(model)
            in_force = True
        yield model.clone()


def _rates(model: Tensor) -> tuple[Tensor, Tensor]:
    """Return step size and weight decay of each run."""
    return torch.full_like(model[:, 0], LEARNING_RATE), torch.zeros_like(model[:, 0])


SETTING = coupling(
    mean=(0.0, 0.5, -1.0), sd=(1.0, 2.0, 1.5), slope=(1.0, 2.0, 0.3), noise=(0.5, 1.0, 1.0)
)
LAMBDA = {"wri": 10.0, "erm": 0.0}
STARTS = {"equal weights": (0.5, 0.5, 1.0), "spurious only": (0.0, 1.0, 1.0)}

Paths = dict[tuple[str, str], np.ndarray]
"""Algorithm and start to the weights of x_inv and x_spu, `[step, seed, 2]`."""


def run(task: ExperimentTask) -> list[Result]:
    rows, steps = (10_000, 800) if task.full else (2_000, 400)
    found = paths(rows, task.seeds(5, 3), steps, task.progress)
    cells = [
        ResultCell.of(style.ALGORITHM_NAMES[name], f"{what}, {where}", path[-1, :, n])
        for (name, where), path in found.items()
        for n, what in enumerate(("w_inv", "w_spu"))
    ]
    note = "The paper prints no numbers for this figure. The true weights are w_inv = 1, w_spu = 0."
    return [task.make_result(cells, [note], draw(found))]


def paths(rows: int, seeds: range, steps: int, progress: Progress) -> Paths:
    numbers = [*seeds] * len(STARTS)
    start = torch.tensor([STARTS[where] for where in STARTS for _ in seeds], dtype=torch.float64)
    sampled = FeatureBatch.sample(SETTING, rows, numbers)
    densities = exact_log_densities(SETTING)
    found: Paths = {}
    for n, (name, weight) in enumerate(LAMBDA.items()):
        models = descend(sampled, numbers, start, weight, densities, "relative", rows)
        path, report = [], part(progress, n, len(LAMBDA))
        for step, model in enumerate(islice(models, steps), 1):
            path.append(weights_of(model))
            report(step, steps)
        weights = torch.stack(path).unflatten(1, (len(STARTS), len(seeds))).numpy()
        found |= {(name, where): weights[:, k] for k, where in enumerate(STARTS)}
    return found


def draw(found: Paths) -> Figure:
    with style.figure(7, 3.1) as drawn:
        axes = drawn.subplots(1, len(STARTS), sharey=True)
        for ax, where in zip(axes, STARTS, strict=True):
            for name in LAMBDA:
                path = found[name, where]
                for n, (what, dashes) in enumerate((("w_{inv}", "-"), ("w_{spu}", "--"))):
                    label = f"{style.ALGORITHM_NAMES[name]}, ${what}$"
                    look = {"color": style.ALGORITHM_COLOURS[name], "ls": dashes, "label": label}
                    draw_band(ax, range(1, len(path) + 1), path[..., n], **look)
            ax.axhline(0, color="black", lw=0.6)
            ax.set(title=f"start: {where}", xlabel="step")
        axes[0].set_ylabel("weight in the prediction")
        drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return drawn

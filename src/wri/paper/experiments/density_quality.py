"""Figures D.3 and D.4: an unconstrained density network under alternating minimisation.

The model is that of appendix C, f(x) = g·Φ(x) with one linear feature, here with one network on
Φ(x) per environment instead of exact densities. At each step the learned density is compared with
the exact one of Φ, with the best constant C, in the region of overlap:

    min_C mean (C·d_e − p_e)² / min_c mean (c − p_e)²,   1 = as good as a constant

The region of overlap is where p_e and the other environment's density both exceed a tenth of
their peaks, weighted evenly.

Chosen here, since the paper gives no numbers: two environments, x_inv ~ N(±1.5, 1), slopes 1 and
−½; networks 1 → 16 → 1 within [1e-3, 10], so wide that the bounds do not matter; 2 density steps
of 512 rows on λ_d·g² + β·E[−log d] with λ_d = 100, β = 0.1 after each step of the model, whose
gap is scaled by the mean loss and has the weight λ = 10 on 1024 rows; Adam with step size 0.01,
3000 steps. The gap of the density steps is *not* scaled. Figure D.3 also shows the scaling of the
paper's code, (g/(d̄·l̄))²: it does not change with the size of the density, so only −log d and the
bounds determine that size, and the error hardly falls.

Why it works where it does: a squared gap of a batch of B rows contains the variance of its two
means, so d_j's expected loss is pointwise λ_d/B · p_i·E[l²|x]·d_j² − β/2 · p_j·log d_j, up to the
squared expectations, which cancel or are small. Its minimum is at

    d_j ∝ √(p_j / p_i)     where E[l² | x] is the same everywhere.

These weights satisfy α·p_i = β·p_j = √(p_i·p_j), so weighted risk invariance holds with them, but
they are not p_j: they look like p_j between two environments of equal width and grow without bound
beyond. The error of that limit is drawn beside the learned one.
"""

from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import norm
from torch import Tensor

from wri.objectives.weighted_risks import Scaling
from wri.paper.experiments import ExperimentTask
from wri.paper.experiments import figureC1 as linear
from wri.paper.experiments.panels import draw_band
from wri.paper.result import Result, ResultCell
from wri.progress import Progress, part
from wri.report import style

SETTING = linear.coupling(mean=(-1.5, 1.5), sd=(1.0, 1.0), slope=(1.0, -0.5), noise=(1.0, 1.0))
TRUE_LOGS = linear.exact_log_densities(SETTING)
START = (1.0, 1.0, 0.5)
LAMBDA, BATCH = 10.0, 1024
ROWS, STEPS, EVERY = 10_000, 3000, 25
SHARE_OF_PEAK = 0.1
GRID = torch.linspace(-6, 6, 601, dtype=torch.float64)  # values of x_inv


class DensityComparison(NamedTuple):
    """Learned and true densities of Φ at the values of x_inv on the grid."""

    learned: Tensor  # [R, E, G]
    true: Tensor  # [R, E, G]

    @property
    def overlap(self) -> Tensor:  # [R, E, G] bool
        """Return where an environment and another one are both common."""
        common = self.true > SHARE_OF_PEAK * self.true.amax(-1, keepdim=True)
        return common & (common.sum(1, keepdim=True) > 1)

    @property
    def proportional(self) -> Tensor:  # [R, E, G]
        """Return C·d with the best constant in the region of overlap."""
        inside = self.overlap.to(self.true)
        product = (inside * self.learned * self.true).sum(-1, keepdim=True)
        return self.learned * product / (inside * self.learned.square()).sum(-1, keepdim=True)

    @property
    def relative_error(self) -> Tensor:  # [R, E]
        inside = self.overlap.to(self.true)
        mean = (inside * self.true).sum(-1, keepdim=True) / inside.sum(-1, keepdim=True)
        error = (inside * (self.proportional - self.true).square()).sum(-1)
        return error / (inside * (self.true - mean).square()).sum(-1)


class DensityTraining(NamedTuple):
    """Errors of the learned densities over time, and the end of the training."""

    steps: np.ndarray  # [T]
    errors: np.ndarray  # [T, seed], mean over environments
    weights: np.ndarray  # [seed, 2], at the end
    last: DensityComparison


SCALINGS: dict[str, Scaling] = {"unscaled gap": "none", "scaled as in the paper's code": "relative"}


def run(task: ExperimentTask) -> list[Result]:
    """Make both figures from the same training."""
    seeds, steps, limit = task.seeds(10, 3), STEPS if task.full else 1000, limit_error()
    trained = {
        label: training(seeds, steps, scaling, part(task.progress, n, len(SCALINGS)))
        for n, (label, scaling) in enumerate(SCALINGS.items())
    }
    found = trained["unscaled gap"]
    notes = [
        "The paper prints no numbers for this figure. The error of a constant is "
        f"1; that of √(p_j/p_i), the limit of the density steps, is {limit:.3f}.",
        f"Largest final error of any seed: {found.errors[-1].max():.3f}.",
        f"Weights at the end: w_inv {found.weights[:, 0].mean():.3f}, "
        f"w_spu {found.weights[:, 1].mean():.3f} (means over {len(seeds)} seeds).",
    ]
    over_time = [  # at the first and the last step, and at two between
        ResultCell.of(label, f"step {each.steps[n]}", each.errors[n])
        for label, each in trained.items()
        for n in (0, len(each.steps) // 10, len(each.steps) // 3, -1)
    ]
    at_the_end = [
        ResultCell.of(f"environment {e + 1}", "relative MSE", errors.numpy())
        for e, errors in enumerate(found.last.relative_error.T)
    ]
    shown = {
        "figureD3": lambda: (over_time, notes, draw_errors(trained, limit)),
        "figureD4": lambda: (at_the_end, notes, draw_densities(found.last)),
    }
    return [task.make_result(*shown[output](), output) for output in task.outputs]


def training(seeds: range, steps: int, scaling: Scaling, progress: Progress) -> DensityTraining:
    start = torch.tensor([START] * len(seeds), dtype=torch.float64)
    rows = linear.FeatureBatch.sample(SETTING, ROWS, seeds)
    densities = linear.LearnedDensities(rows, seeds, scaling)
    models = linear.descend(rows, seeds, start, LAMBDA, densities, "loss", BATCH)
    at, errors = [], []
    for step, model in enumerate(islice(models, steps), 1):
        if step % EVERY == 0 or step == 1:
            at.append(step)
            errors.append(compare(model, densities).relative_error.mean(1))
        progress(step, steps)
    ends = linear.weights_of(model).numpy(), compare(model, densities)
    return DensityTraining(np.array(at), torch.stack(errors).numpy(), *ends)


@torch.no_grad()
def compare(model: Tensor, densities: linear.LearnedDensities) -> DensityComparison:
    phi = model[:, :1] * GRID  # [R, G], as if x_spu had no weight
    learned = densities(model, phi[:, None])[:, :, 0].exp()
    true = TRUE_LOGS(model, phi[:, None])[:, :, 0].exp()
    return DensityComparison(learned, true)


def limit_error() -> float:
    """Return the relative error of √(p_j / p_i) for an invariant model, mean over environments."""
    invariant = torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64)
    logs = TRUE_LOGS(invariant, GRID[None, None])[:, :, 0]  # [1, E, G]
    root = (0.5 * (logs - logs.flip(1))).exp()
    return float(DensityComparison(root, logs.exp()).relative_error.mean())


def draw_errors(trained: Mapping[str, DensityTraining], limit: float) -> Figure:
    with style.figure(5, 3.2) as drawn:
        ax = drawn.subplots()
        colours = (style.ALGORITHM_COLOURS["wri"], style.PURPLE)
        for (label, found), colour in zip(trained.items(), colours, strict=True):
            draw_band(ax, found.steps, found.errors, color=colour, label=label)
        ax.axhline(1, color="black", ls=":", lw=1, label="a constant")
        ax.axhline(limit, color=style.BLUE, ls="--", lw=1, label="$\\sqrt{p_j / p_i}$")
        ax.set(xlabel="step", ylabel="relative MSE in the overlap", ylim=(0, None))
        ax.legend(ncols=2, fontsize=7)
    return drawn


def draw_densities(last: DensityComparison) -> Figure:
    with style.figure(8, 2.9) as drawn:
        axes = drawn.subplots(1, SETTING.environments, sharey=True)
        for e, ax in enumerate(axes):
            draw_density(ax, last, e)
        axes[0].set_ylabel("density")
    return drawn


def draw_density(ax: Axes, last: DensityComparison, e: int) -> None:
    """Draw each seed's learned density beside the true one of x_inv."""
    x = GRID.numpy()
    true = norm.pdf(x, SETTING.invariant_mean[e, 0], SETTING.invariant_covariance[e, 0, 0] ** 0.5)
    inside = x[last.overlap[0, e].numpy()]
    ax.axvspan(inside[0], inside[-1], color="#EEEEEE", lw=0, label="overlap")
    pairs = zip(last.proportional[:, e].numpy(), last.true[:, e].numpy(), strict=True)
    for n, (learned, exact) in enumerate(pairs):
        unit = true.max() / exact.max()  # Φ is x_inv in another unit
        label = "learned, each seed" if n == 0 else None
        ax.plot(x, learned * unit, color=style.ALGORITHM_COLOURS["wri"], lw=0.8, label=label)
    ax.plot(x, true, color="black", label=f"true $p_{e + 1}(x_{{inv}})$")
    ax.set(xlim=(-4.5, 4.5), ylim=(0, 1.6 * true.max()), xlabel="$x_{inv}$")
    ax.set_title(f"environment {e + 1}")
    ax.legend(loc="upper left" if e else "upper right", fontsize=7)

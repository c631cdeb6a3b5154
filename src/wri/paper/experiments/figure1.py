"""Figure 1: two Gaussian features, heteroskedastic, with invariant covariate shift.

Linear predictors are fitted on environments 1 and 2 with SciPy's BFGS and tested on environment 3,
where the spurious feature has the opposite sign. As in the paper: the logistic loss, the mean of
the two risks, exact *joint* densities p_e(x_inv, x_spu) as WRI's weights (so Proposition 1 does not
cover them), the gap scaled as g²/(d̄·l̄) with λ = 1500, and VREx's penalty (R_1 − R_2)² with λ = 1.
IRM's λ is 1e5 in the paper's text and 1e4 in its code; the solutions agree to three digits.

Chosen here, since the paper does not say: every fit starts from equal weights (1, 1) and offset 0.
From zero IRM stays there, as the constant predictor has no penalty. The full size is the paper's
10,000 points per environment, with five seeds; the quick size is 3,000 points and two seeds.

Risks and penalties of linear classifiers serve figures 3 and 4 as well. A classifier is w = (w_inv,
w_spu, offset) with the logistic loss. Two training environments are weighted points, a sample or a
grid, and the penalties are those of `wri.objectives.functional`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from scipy.optimize import minimize
from torch import Tensor

from wri.datasets import Environment, Gaussian2D
from wri.objectives.functional import irm_penalty, vrex_penalty, wri_penalty
from wri.objectives.weighted_risks import Scaling
from wri.paper.experiments import ExperimentTask
from wri.paper.result import Result, make_line
from wri.report import style
from wri.stacked import LOGISTIC


@dataclass(frozen=True, eq=False, kw_only=True)
class Points:
    """Two environments as weighted points: a sample, or a grid to integrate over."""

    x: Tensor  # [E, B, 2]
    y: Tensor  # [E, B]
    weight: Tensor  # [E, B], sums to one over the points
    log_joint: Tensor  # [E density, E points, B]
    log_invariant: Tensor  # [E density, E points, B]


def _with_densities(setting: Gaussian2D, x: Tensor, y: Tensor, weight: Tensor) -> Points:
    densities = (setting.log_joint(x), setting.log_invariant(x))  # [E points, B, density]
    joint, invariant = (each[..., :2].movedim(-1, 0) for each in densities)
    return Points(x=x, y=y, weight=weight, log_joint=joint, log_invariant=invariant)


def sampled(setting: Gaussian2D, environments: Sequence[Environment]) -> Points:
    """Return the rows of a sample's first two environments."""
    x, y = (torch.tensor(np.stack([getattr(e, k) for e in environments[:2]])) for k in "xy")
    return _with_densities(setting, x, y, torch.full(y.shape, 1 / y.shape[1], dtype=x.dtype))


def integrated(setting: Gaussian2D, step: float = 0.4, reach: float = 8.0) -> Points:
    """Return the population on an even grid, where sums of smooth functions are nearly exact."""
    axis = torch.arange(-reach, reach + step / 2, step, dtype=torch.float64)
    x = torch.cartesian_prod(axis, axis)  # [G, 2]
    mass = setting.log_joint(x).exp()[:, :2].T  # [E, G]
    of_class_one = mass * setting.probability(x)[:, :2].T
    weight = torch.cat([mass - of_class_one, of_class_one], dim=-1)  # [E, 2G]
    y = torch.tensor([0, 1]).repeat_interleave(len(x)).expand(2, -1)
    twice = x.repeat(2, 1).expand(2, -1, -1)  # [E, 2G, 2]
    return _with_densities(setting, twice, y, weight / weight.sum(-1, keepdim=True))


def risk_and_penalty(
    name: str, w: Tensor, points: Points, scaling: Scaling = "product"
) -> tuple[Tensor, Tensor]:  # [3] -> [], []
    """Return the mean risk of weights and offset, and the penalty of IRM, VREx or WRI."""
    outputs = (points.x @ w[:2] + w[2])[..., None]  # [E, B, 1]
    losses = LOGISTIC.per_example(outputs, points.y)
    risks = (points.weight * losses).sum(-1)  # [E]
    penalty = torch.zeros_like(risks[0])
    if name == "irm":
        gradients = LOGISTIC.scale_gradient(outputs, points.y)
        penalty = irm_penalty(gradients, weight=points.weight).sum()
    elif name == "vrex":  # the squared difference of two risks is four times their variance
        penalty = 4 * vrex_penalty(risks)
    elif name in ("wri", "wri_invariant"):
        log_densities = points.log_joint if name == "wri" else points.log_invariant
        penalty = wri_penalty(losses, log_densities, scaling=scaling, row_weight=points.weight)
    return risks.mean(), penalty


def solve(
    name: str,
    penalty_weight: float,
    points: Points,
    starts: Sequence[tuple[float, float, float]] = ((1.0, 1.0, 0.0),),
) -> np.ndarray:
    """Return weights of x_inv and x_spu and the offset that minimise risk + λ · penalty.

    Uses BFGS; the smallest of several starts counts.
    """

    def objective(w: Tensor) -> Tensor:
        risk, penalty = risk_and_penalty(name, w, points)
        return risk + penalty_weight * penalty

    function = with_gradient(objective)
    found = [minimize(function, np.array(s), jac=True, method="BFGS") for s in starts]
    return np.asarray(min(found, key=lambda result: float(result.fun)).x)


def with_gradient(
    function: Callable[[Tensor], Tensor],
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Return the function with its gradient, for SciPy."""

    def value_and_gradient(at: np.ndarray) -> tuple[float, np.ndarray]:
        w = torch.tensor(at, requires_grad=True)
        value = function(w)
        (gradient,) = torch.autograd.grad(value, w)
        return value.item(), gradient.numpy()

    return value_and_gradient


def share_of(w: np.ndarray) -> float:
    return float(abs(w[1]) / (abs(w[0]) + abs(w[1])))


def accuracy_of(w: np.ndarray, environment: Environment) -> float:
    predicted = environment.x @ w[:2] + w[2] > 0
    return float(np.mean(predicted == environment.y))


LAMBDA = {"erm": 0.0, "irm": 1e5, "vrex": 1.0, "wri": 1500.0}


def run(task: ExperimentTask) -> list[Result]:
    setting, seeds = Gaussian2D(), task.seeds(5, 2)
    samples, weights = [], []
    for done, seed in enumerate(seeds, 1):
        samples.append(setting.sample(10_000 if task.full else 3_000, seed))
        points = sampled(setting, samples[-1])
        weights.append({name: solve(name, LAMBDA[name], points) for name in LAMBDA})
        task.progress(done, len(seeds))
    rows = []
    for name in LAMBDA:
        pairs = [(w[name], sample[2]) for w, sample in zip(weights, samples, strict=True)]
        found = {
            "test accuracy (%)": [100 * accuracy_of(w, test) for w, test in pairs],
            "|w_spu / w_inv|": [abs(w[1] / w[0]) for w, _ in pairs],
        }
        rows += make_line(style.ALGORITHM_NAMES[name], found)
    ceiling = 100 * setting.best_accuracy(2)
    notes = [
        "The paper prints no numbers for this figure.",
        f"A predictor that uses x_inv alone reaches at most {ceiling:.2f} % in expectation.",
    ]
    return [task.make_result(rows, notes, draw(setting, samples[0], weights[0]))]


def draw(
    setting: Gaussian2D, environments: list[Environment], weights: dict[str, np.ndarray]
) -> Figure:
    """Draw the environments and what they share (top), and the predictions (bottom)."""
    with style.figure(10, 5.2) as drawn:
        axes = drawn.subplots(2, 4)
        for ax, environment, name in zip(
            axes[0], environments, ("1 (train)", "2 (train)", "3 (test)"), strict=False
        ):
            scatter(ax, environment)
            ax.set_title(f"Environment {name}")
        axes[0, 0].legend(loc="upper left", markerscale=3, handletextpad=0.1, labelspacing=0.2)
        draw_shift(axes[0, 3], setting)
        for ax, (name, w) in zip(axes[1], weights.items(), strict=True):
            draw_prediction(ax, name, w, environments[2])
        for ax in axes[:, 0]:
            ax.set_ylabel("$x_{spu}$")
    return drawn


def scatter(ax: Axes, environment: Environment, points: int = 1000) -> None:
    for label, colour in enumerate(style.CLASS_COLOURS):
        chosen = environment.x[:points][environment.y[:points] == label]
        look: dict[str, Any] = {
            "s": 3,
            "alpha": 0.5,
            "color": colour,
            "linewidths": 0,
            "rasterized": True,
        }
        ax.scatter(*chosen.T, label=f"y = {label}", **look)
    ax.set(xlim=(-8, 8), ylim=(-6, 6), xlabel="$x_{inv}$")


def draw_shift(ax: Axes, setting: Gaussian2D) -> None:
    grid = torch.linspace(-8, 8, 401, dtype=torch.float64)
    points = torch.stack([grid, torch.zeros_like(grid)], -1)
    for e, density in enumerate(setting.log_invariant(points).exp().T):
        ax.plot(grid, density, color=style.ENVIRONMENT_COLOURS[e], label=f"$p_{e + 1}(x_{{inv}})$")
    probability = setting.invariant_probability(grid)
    ax.plot(grid, probability, color="black", ls="--", label="$P(y = 1\\,|\\,x_{inv})$")
    ax.set(
        xlabel="$x_{inv}$", ylim=(0, 1.05), xlim=(-8, 8), title="The cause shifts, its law stays"
    )
    ax.legend(loc="center right", labelspacing=0.2, handlelength=1, borderaxespad=0, fontsize=7)


def draw_prediction(ax: Axes, name: str, w: np.ndarray, test: Environment) -> None:
    horizontal, vertical = np.meshgrid(np.linspace(-8, 8, 200), np.linspace(-6, 6, 150))
    logit = w[0] * horizontal + w[1] * vertical + w[2]
    shades = LinearSegmentedColormap.from_list("classes", style.CLASS_SHADES)
    levels = np.linspace(0, 1, 11)
    ax.contourf(horizontal, vertical, 1 / (1 + np.exp(-logit)), levels=levels, cmap=shades)
    scatter(ax, test, points=600)
    ax.contour(horizontal, vertical, logit, levels=[0], colors="black", linewidths=1.5)
    ax.set_title(
        f"{style.ALGORITHM_NAMES[name]}: {100 * accuracy_of(w, test):.1f} %,  "
        f"|$w_{{spu}}/w_{{inv}}$| = {abs(w[1] / w[0]):.2f}"
    )

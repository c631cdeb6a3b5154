"""Figure 1: two Gaussian features, heteroskedastic, with invariant covariate shift.

Linear predictors are fitted on environments 1 and 2 with SciPy's BFGS and tested on environment 3,
where the spurious feature has the opposite sign. As in the paper: the logistic loss, the mean of
the two risks, exact *joint* densities p_e(x_inv, x_spu) as WRI's weights (so Proposition 1 does not
cover them), the gap scaled as g²/(d̄·l̄) with λ = 1500, and VREx's penalty (R_1 − R_2)² with λ = 1.
IRM's λ is 1e5 in the paper's text and 1e4 in its code; the solutions agree to three digits.

Chosen here, since the paper does not say: every fit starts from equal weights (1, 1) and offset 0.
From zero IRM stays there, as the constant predictor has no penalty. The full size is the paper's
10,000 points per environment, with five seeds; the quick size is 3,000 points and two seeds.
"""

from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from wri.datasets import Environment, Gaussian2D
from wri.paper.experiments import ExperimentTask
from wri.paper.experiments.linear_classifiers import accuracy_of, sampled, solve
from wri.paper.result import Result, make_line
from wri.report import style

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

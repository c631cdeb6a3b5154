"""Figure C.1: with exact densities of Φ(x) WRI discards the spurious weight, ERM does not.

The model is f(x) = g·(a·x_inv + b·x_spu) on the regression of equation 5; the density is that of
the scalar feature Φ(x) = a·x_inv + b·x_spu, exact and Gaussian, and changes with a and b. (The
paper's two features scaled by one weight each have no density once a weight is zero.)

Chosen here, since the paper gives no numbers: three environments, because two give one equation for
two weights and leave a curve of solutions; they differ in the invariant distribution and in the
spurious slope. 10,000 rows per environment, full batches, Adam with step size 0.01, the gap scaled
as (g/(d̄·l̄))², which does not change with the unit of Φ, and λ = 10. Starts: a = b = ½ and a = 0,
b = 1, with g = 1. The lines are g·a and g·b.
"""

from itertools import islice

import numpy as np
import torch
from matplotlib.figure import Figure

from wri.paper.experiments import ExperimentTask
from wri.paper.experiments import linear_features as linear
from wri.paper.experiments.panels import draw_band
from wri.paper.result import Result, ResultCell
from wri.progress import Progress, part
from wri.report import style

SETTING = linear.coupling(
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
    sampled = linear.FeatureBatch.sample(SETTING, rows, numbers)
    densities = linear.exact_log_densities(SETTING)
    found: Paths = {}
    for n, (name, weight) in enumerate(LAMBDA.items()):
        models = linear.descend(sampled, numbers, start, weight, densities, "relative", rows)
        path, report = [], part(progress, n, len(LAMBDA))
        for step, model in enumerate(islice(models, steps), 1):
            path.append(linear.weights_of(model))
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

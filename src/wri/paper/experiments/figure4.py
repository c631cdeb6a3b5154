"""Figure 4: penalties of IRM and WRI for slightly spurious predictors as the shift grows.

    min_w penalty(w)   over   R(w) ≤ 1.01 · min R,       w = (w_inv, w_spu, offset),  R = mean_e R_e

The paper shows a picture, without parameters and numbers. Chosen here:

* X_inv ~ N(∓δ/2, 1) in environments 1 and 2, δ from 0 to 2, and X_spu | Y ~ N(±0.5, 1) and
  N(±0.2, 1): a feature so weak that ERM itself is only slightly spurious, w_spu/w_inv = 0.4, and
  yet the best invariant predictor's risk is 8 % above ERM's. So everything within 1 % of ERM's risk
  is spurious, and only a penalty can reject it. The best invariant predictor's own penalties are
  zero at every δ: WRI's as told in Figure 3, IRM's since the environments mirror each other.
* Everything is integrated over a grid: no sampling noise. The set is convex and close to an
  ellipsoid; in coordinates that make it a ball SLSQP starts from both ends of its three axes.
* IRM's penalty is the sum of the squared gradients, as printed. WRI's weights are the exact joint
  densities, scaled as the paper's 2-D toy: g²/(d̄·l̄).

The scaling decides how WRI looks. A predictor's gap is a constant times exp(−δ²/4), as is d̄: both
are integrals against p_1·p_2, whose shape does not depend on δ. Unscaled, g² falls as exp(−δ²/2);
g²/(d̄·l̄) as exp(−δ²/4)/l̄; the relative (g/(d̄·l̄))² as 1/l̄², so it grows: l̄ falls as the cases
get easier. Each is a row. Penalties have no common unit, so the figure divides them by their value
at δ = 0. A last table has the strong feature of Figure 3, N(±1.5, 1) and N(±0.5, 1), where all that
is near-optimal is thoroughly spurious: there IRM falls about as WRI does, a little less for sets
well within 1 % and more for wider ones.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.optimize import minimize
from torch import Tensor

from wri.datasets import Gaussian2D
from wri.objectives.weighted_risks import Scaling
from wri.paper.experiments import ExperimentTask
from wri.paper.experiments.figure3 import draw_environments
from wri.paper.experiments.linear_classifiers import (
    Points,
    integrated,
    risk_and_penalty,
    solve,
    with_gradient,
)
from wri.paper.results.result import Result, ResultCell
from wri.report import style

WEAK, STRONG = (0.5, 0.2), (1.5, 0.5)  # means of the spurious feature where Y = 1
TOLERANCE = 0.01
Smallest = Mapping[float, Mapping[str, float]]  # [distance][label]
SHOWN = (0.0, 0.5, 1.0, 1.5, 2.0)  # distances that the tables print
NOTHING = 1e-6  # of a penalty, relative to distance 0


class PenaltySpec(NamedTuple):
    """Penalty of IRM, or of WRI with one kind of density and scaling."""

    name: str
    scaling: Scaling = "product"


CHARGES = {
    "IRM": PenaltySpec("irm"),
    "WRI": PenaltySpec("wri"),
    "WRI, unscaled": PenaltySpec("wri", "none"),
    "WRI, relative": PenaltySpec("wri", "relative"),
    "WRI, p(x_inv)": PenaltySpec("wri_invariant"),
}
LINES = {"IRM": ("-", 2), "WRI": ("-", 2), "WRI, relative": ("--", 1), "WRI, unscaled": (":", 1)}


def environments_at(distance: float, spurious_mean: tuple[float, float]) -> Gaussian2D:
    return Gaussian2D(
        invariant_mean=(-distance / 2, distance / 2),
        invariant_sd=(1.0, 1.0),
        spurious_mean=spurious_mean,
        spurious_sd=(1.0, 1.0),
    )


class NearOptimal(NamedTuple):
    """Predictors of small excess risk: best + axes @ u, where u fills about the unit ball."""

    points: Points
    best: Tensor  # [3], ERM's
    smallest_risk: float
    axes: Tensor  # [3, 3]

    @classmethod
    def of(cls, points: Points) -> "NearOptimal":
        best = torch.tensor(solve("erm", 0.0, points))

        def risk(w: Tensor) -> Tensor:
            return risk_and_penalty("erm", w, points)[0]

        smallest = risk(best).item()
        curvature = torch.autograd.functional.hessian(risk, best)
        values, directions = torch.linalg.eigh(curvature)
        return cls(points, best, smallest, directions * (2 * TOLERANCE * smallest / values).sqrt())

    def slack(self, u: Tensor) -> Tensor:
        """Return 1 at ERM's predictor, 0 on the border, negative outside."""
        risk, _ = risk_and_penalty("erm", self.best + self.axes @ u, self.points)
        return 1 - (risk / self.smallest_risk - 1) / TOLERANCE

    def smallest(self, charge: PenaltySpec) -> tuple[float, np.ndarray]:
        """Return the smallest penalty in the set and a predictor that has it."""

        def penalty(u: Tensor) -> Tensor:
            w = self.best + self.axes @ u
            return risk_and_penalty(charge.name, w, self.points, charge.scaling)[1]

        unit = penalty(torch.zeros_like(self.best)).item()  # ERM's, so SLSQP sees numbers near 1
        value, slack = with_gradient(lambda u: penalty(u) / unit), with_gradient(self.slack)
        border = {
            "type": "ineq",
            "fun": lambda u: self.slack(torch.tensor(u)).item(),
            "jac": lambda u: slack(u)[1],
        }
        found = [
            minimize(value, start, jac=True, method="SLSQP", constraints=border, tol=1e-9)
            for start in np.concatenate([np.eye(3), -np.eye(3)])
        ]
        inside = [each for each in found if slack(each.x)[0] > -1e-6]
        if not inside:
            raise RuntimeError("no start of the search ended within the set of near-optimal risk")
        lowest = min(inside, key=lambda each: float(each.fun))
        return unit * float(lowest.fun), (self.best + self.axes @ torch.tensor(lowest.x)).numpy()


def smallest_at(distance: float, spurious_mean: tuple[float, float]) -> dict[str, float]:
    near = NearOptimal.of(integrated(environments_at(distance, spurious_mean)))
    return {label: near.smallest(charge)[0] for label, charge in CHARGES.items()}


def run(task: ExperimentTask) -> list[Result]:
    distances = np.linspace(0, 2, 41 if task.full else 9).tolist()
    smallest: dict[tuple[float, float], dict[float, dict[str, float]]] = {WEAK: {}, STRONG: {}}
    todo = [(WEAK, distance) for distance in distances] + [(STRONG, each) for each in SHOWN]
    for done, (means, distance) in enumerate(todo):
        smallest[means][distance] = smallest_at(distance, means)
        task.progress(done + 1, len(todo))

    weak, strong = relative_to_start(smallest[WEAK]), relative_to_start(smallest[STRONG])
    tables = {
        "smallest penalty": smallest[WEAK],
        "relative to distance 0": weak,
        "relative to distance 0, strong spurious feature": strong,
    }
    rows = [
        ResultCell.of(label, f"distance {distance:g}", [values[distance][label]], table=table)
        for table, values in tables.items()
        for label in CHARGES
        for distance in SHOWN
    ]
    seen = [distance for distance in distances if weak[distance]["IRM"] > NOTHING]
    notes = [
        "The paper prints no numbers for this figure.",
        f"Beyond distance {max(seen):g} IRM's penalty of some spurious predictor is less than a "
        "millionth of its smallest penalty at distance 0; WRI's penalty of each is at least "
        f"{weak[2.0]['WRI']:.2f} of it.",
        f"With a strong spurious feature IRM falls to {strong[2.0]['IRM']:.2f} and WRI to "
        f"{strong[2.0]['WRI']:.2f}; unscaled WRI falls further, to "
        f"{strong[2.0]['WRI, unscaled']:.2f}.",
    ]
    figures = style.save(draw(distances, weak), task.folder, task.name)
    return [Result(experiment=task.name, rows=rows, figures=figures, notes=notes)]


def relative_to_start(smallest: Smallest) -> dict[float, dict[str, float]]:
    first = smallest[0.0]
    return {
        distance: {label: round(value / first[label], 9) for label, value in each.items()}
        for distance, each in smallest.items()
    }


def draw(distances: Sequence[float], relative: Smallest) -> Figure:
    """Draw penalties by distance (left) and the environments at both ends (right)."""
    with style.figure(10, 3) as drawn:
        axes = drawn.subplots(1, 3, width_ratios=[1.7, 1, 1])
        for label, (line, width) in LINES.items():
            colour = style.ALGORITHM_COLOURS[CHARGES[label].name]
            values = [relative[distance][label] for distance in distances]
            axes[0].plot(distances, values, color=colour, ls=line, lw=width, label=label)
        axes[0].axhline(0, color="black", lw=0.5)
        axes[0].set(
            xlabel="distance of the invariant means", ylabel="smallest penalty (1 at distance 0)"
        )
        axes[0].set_title("(a) Smallest penalty of slightly spurious predictors")
        axes[0].legend(loc="upper left")
        for ax, distance, letter in ((axes[1], 0.0, "b"), (axes[2], 2.0, "c")):
            draw_environments(ax, environments_at(distance, WEAK), (0, 1))
            ax.set_title(f"({letter}) Distance {distance:g}")
    return drawn

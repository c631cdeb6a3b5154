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

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.optimize import minimize
from torch import Tensor

from wri.datasets import Gaussian2D
from wri.objectives.weighted_risks import Scaling
from wri.paper.experiments import ExperimentTask, panels
from wri.paper.experiments import figure1 as linear
from wri.paper.result import Result, make_line
from wri.report import style

WEAK, STRONG = (0.5, 0.2), (1.5, 0.5)  # means of the spurious feature where Y = 1
TOLERANCE = 0.01
Smallest = Mapping[float, Mapping[str, float]]  # [distance][label]
SHOWN = (0.0, 0.5, 1.0, 1.5, 2.0)  # distances that the tables print
NOTHING = 1e-6  # of a penalty, relative to distance 0


CHARGES: dict[str, tuple[str, Scaling]] = {
    "IRM": ("irm", "product"),
    "WRI": ("wri", "product"),
    "WRI, unscaled": ("wri", "none"),
    "WRI, relative": ("wri", "relative"),
    "WRI, p(x_inv)": ("wri_invariant", "product"),
}
"""Penalty of IRM, or of WRI with one kind of density, and its scaling."""
LINES = {"IRM": ("-", 2), "WRI": ("-", 2), "WRI, relative": ("--", 1), "WRI, unscaled": (":", 1)}


def environments_at(distance: float, spurious_mean: tuple[float, float]) -> Gaussian2D:
    return Gaussian2D(
        invariant_mean=(-distance / 2, distance / 2),
        invariant_sd=(1.0, 1.0),
        spurious_mean=spurious_mean,
        spurious_sd=(1.0, 1.0),
    )


class NearOptimal:
    """Predictors of small excess risk: best + axes @ u, where u fills about the unit ball."""

    def __init__(self, points: linear.Points) -> None:
        self.points = points
        self.best = torch.tensor(linear.solve("erm", 0.0, points))  # [3]
        self.smallest_risk = self.risk(self.best).item()
        values, directions = torch.linalg.eigh(
            torch.autograd.functional.hessian(self.risk, self.best)
        )
        self.axes = directions * (2 * TOLERANCE * self.smallest_risk / values).sqrt()  # [3, 3]

    def risk(self, w: Tensor) -> Tensor:
        return linear.risk_and_penalty("erm", w, self.points)[0]

    def slack(self, u: Tensor) -> Tensor:
        """Return 1 at ERM's predictor, 0 on the border, negative outside."""
        return 1 - (self.risk(self.best + self.axes @ u) / self.smallest_risk - 1) / TOLERANCE

    def smallest(self, name: str, scaling: Scaling = "product") -> tuple[float, np.ndarray]:
        """Return the smallest penalty in the set and a predictor that has it."""

        def penalty(u: Tensor) -> Tensor:
            return linear.risk_and_penalty(name, self.best + self.axes @ u, self.points, scaling)[1]

        unit = penalty(torch.zeros_like(self.best)).item()  # ERM's, so SLSQP sees numbers near 1
        value = linear.with_gradient(lambda u: penalty(u) / unit)
        slack = linear.with_gradient(self.slack)
        border = {"type": "ineq", "fun": lambda u: slack(u)[0], "jac": lambda u: slack(u)[1]}
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
    near = NearOptimal(linear.integrated(environments_at(distance, spurious_mean)))
    return {label: near.smallest(*charge)[0] for label, charge in CHARGES.items()}


def run(task: ExperimentTask) -> list[Result]:
    distances = np.linspace(0, 2, 41 if task.full else 9).tolist()
    smallest: dict[tuple[float, float], dict[float, dict[str, float]]] = {WEAK: {}, STRONG: {}}
    todo = [(WEAK, distance) for distance in distances] + [(STRONG, each) for each in SHOWN]
    for done, (means, distance) in enumerate(todo, 1):
        smallest[means][distance] = smallest_at(distance, means)
        task.progress(done, len(todo))
    weak, strong = (relative_to_start(smallest[means]) for means in (WEAK, STRONG))
    tables = {
        "smallest penalty": smallest[WEAK],
        "relative to distance 0": weak,
        "relative to distance 0, strong spurious feature": strong,
    }
    rows = [
        cell
        for table, values in tables.items()
        for label in CHARGES
        for cell in make_line(label, {f"distance {d:g}": values[d][label] for d in SHOWN}, table)
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
    return [task.make_result(rows, notes, draw(distances, weak))]


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
            colour = style.ALGORITHM_COLOURS[CHARGES[label][0]]
            values = [relative[distance][label] for distance in distances]
            axes[0].plot(distances, values, color=colour, ls=line, lw=width, label=label)
        axes[0].axhline(0, color="black", lw=0.5)
        axes[0].set(
            xlabel="distance of the invariant means", ylabel="smallest penalty (1 at distance 0)"
        )
        axes[0].set_title("(a) Smallest penalty of slightly spurious predictors")
        axes[0].legend(loc="upper left")
        panels.draw_environments(axes[1], environments_at(0.0, WEAK), (0, 1), "(b) Distance 0")
        panels.draw_environments(axes[2], environments_at(2.0, WEAK), (0, 1), "(c) Distance 2")
    return drawn

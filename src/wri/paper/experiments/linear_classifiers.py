"""Linear classifiers of two Gaussian features for figures 1, 3 and 4: risks and penalties.

A classifier is w = (w_inv, w_spu, offset) with the logistic loss. Two training environments are
weighted points, a sample or a grid, and the penalties are those of `wri.objectives.functional`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from wri.datasets import Environment, Gaussian2D
from wri.objectives.functional import irm_penalty, vrex_penalty, wri_penalty
from wri.objectives.weighted_risks import Scaling
from wri.stacked import LOGISTIC


class Points(NamedTuple):
    """Two environments as weighted points: a sample, or a grid to integrate over."""

    x: Tensor  # [E, B, 2]
    y: Tensor  # [E, B]
    weight: Tensor  # [E, B], sums to one over the points
    log_joint: Tensor  # [E density, E points, B]
    log_invariant: Tensor  # [E density, E points, B]


def _with_densities(setting: Gaussian2D, x: Tensor, y: Tensor, weight: Tensor) -> Points:
    densities = (setting.log_joint(x), setting.log_invariant(x))  # [E points, B, density]
    return Points(x, y, weight, *(each[..., :2].movedim(-1, 0) for each in densities))


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

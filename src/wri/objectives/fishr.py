"""Fishr: a penalty on the spread of the gradients' variances.

    mean_e R_e + λ · mean_e mean_p (v_ep − mean v_p)²     (Rame et al., 2022)
    v_ep = variance over the rows of e of the gradient of a row's loss in parameter p of the head

The head is one linear layer, outputs W Φ(x) + c, so the gradient of a row is s_c Φ_k in W and s_c
in c, with the slope s of the loss in the outputs. Its variance is mean(s² Φ²) − mean(s Φ)²: two
products of matrices, and no gradient per row is stored. As in DomainBed the variances are averaged
over steps, v ← μ·v + (1 − μ)·new, and divided by 1 − μ; λ is 0 before the annealing step.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from wri.objectives.base import Batch, Model, Objective, Start, StepContext, Stepped, scheduled
from wri.objectives.hyperparameters import (
    LogUniform,
    Uniform,
    annealing,
    penalty_weight,
    step_parameter,
)


def head_gradient_variance(
    slopes: Tensor, features: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Compute the variances of the rows' gradients in a linear head.

    Parameters
    ----------
    slopes : Tensor of shape (..., B, C)
        Gradient of each row's loss in the outputs.
    features : Tensor of shape (..., B, F)
        Inputs of the head.
    weight : Tensor of shape (..., B) or None, default=None
        Weights of the rows, which sum to one over B. None: equal weights.

    Returns
    -------
    variance : Tensor of shape (..., C * (F + 1))
        Variance of the gradient in each weight and offset.

    References
    ----------
    A. Rame, C. Dancette and M. Cord, "Fishr: Invariant Gradient Variances for Out-of-Distribution
    Generalization", ICML, 2022.

    Examples
    --------
    >>> import torch
    >>> from wri.objectives.functional import head_gradient_variance
    >>> head_gradient_variance(torch.tensor([[1.0], [3.0]]), torch.tensor([[1.0], [1.0]])).tolist()
    [1.0, 1.0]
    """
    inputs = torch.cat([features, torch.ones_like(features[..., :1])], -1)  # [..., B, F + 1]
    share = 1 / slopes.shape[-2] if weight is None else weight[..., None]
    mean = (share * slopes).transpose(-1, -2) @ inputs  # [..., C, F + 1]
    square = (share * slopes.square()).transpose(-1, -2) @ inputs.square()
    return (square - mean.square()).flatten(-2)


@dataclass(frozen=True)
class Fishr(Objective):
    """Fishr: invariant variances of gradients.

    References
    ----------
    A. Rame, C. Dancette and M. Cord, "Fishr: Invariant Gradient Variances for Out-of-Distribution
    Generalization", ICML, 2022.
    """

    name = "fishr"
    is_smooth = True
    own_hyperparameters = (
        penalty_weight(
            "λ, weight of the spread of the gradients' variances",
            domainbed=(1e3, LogUniform(1e1, 1e4)),
            table=(100.0, LogUniform(3.0, 3e3)),
        ),
        *annealing(
            (150, Uniform(0, 500, whole=True)),
            (150, Uniform(0, 500, whole=True)),
        ),
        step_parameter(
            "momentum",
            "μ, share of the earlier variances in the running mean",
            domainbed=(0.95, Uniform(0.9, 0.99)),
            high=1 - 1e-6,
        ),
    )

    def initial(self, start: Start) -> Tensor:
        width = (start.network.view_width("phi") + 1) * start.network.view_width("outputs")
        shape = (len(start.seeds), start.environments, width)
        return torch.zeros(shape, dtype=start.dtype, device=start.device)

    def loss(self, model: Model, batch: Batch, state: Tensor, context: StepContext) -> Stepped:
        phi = model.represent(batch.x)  # [R, E, B, F]
        outputs = model.head(phi)
        losses = model.loss.per_example(outputs, batch.y)
        (slopes,) = torch.autograd.grad(losses.sum(), outputs, create_graph=True)  # [R, E, B, C]
        momentum = context.hyper["momentum"][:, None, None]
        running = momentum * state
        running = running + (1 - momentum) * head_gradient_variance(slopes, phi, batch.weight)
        variances = running / (1 - momentum)  # [R, E, P]
        spread = (variances - variances.mean(1, keepdim=True)).square().mean((1, 2))
        risk = batch.mean(losses).mean(-1)
        return risk + scheduled(context, 0.0) * spread, running.detach()

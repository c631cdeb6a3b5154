"""Anchor regression with the environments as anchors: a penalty on each one's mean residual.

    mean_e R_e + λ · mean_e |mean_b s_b|²,   s = f − y    (Rothenhäusler et al., 2021)

For squared loss this is their estimator with γ = 1 + λ: R_e is the variance of the residuals plus
the square of their mean, so the squared mean counts γ times. For classes the residual is the score
of the loss in the outputs (Kook et al., 2022): s = softmax(f) − y, or σ(f) − y for log-odds.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import one_hot

from wri.objectives.base import Batch, Model, PenaltyObjective, weighted_mean
from wri.objectives.hyperparameters import LogUniform, penalty_weight
from wri.stacked import Loss, Views


def anchor_penalty(residuals: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute the squared mean residual.

    Parameters
    ----------
    residuals : Tensor of shape (..., B, C)
        Residuals of the rows of an environment, one per output.
    weight : Tensor of shape (..., B) or None, default=None
        Weights of the rows, which sum to one over B. None: equal weights.

    Returns
    -------
    penalty : Tensor of shape (...)
        Sum over the outputs; zero if the residuals of the environment sum to zero.

    References
    ----------
    D. Rothenhäusler, N. Meinshausen, P. Bühlmann and J. Peters, "Anchor regression: heterogeneous
    data meet causality", JRSS B, 2021.

    Examples
    --------
    >>> import torch
    >>> from wri.objectives.functional import anchor_penalty
    >>> anchor_penalty(torch.tensor([[1.0], [3.0]])).item()
    4.0
    """
    means = weighted_mean(
        residuals.transpose(-1, -2), None if weight is None else weight[..., None, :]
    )
    return means.square().sum(-1)


def score_residuals(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return f − y, σ(f) − y or softmax(f) − y, `[..., C]`."""
    if loss.classes:
        return outputs.softmax(-1) - one_hot(targets, outputs.shape[-1])
    prediction = outputs.sigmoid() if loss.name == "logistic" else outputs
    return prediction - targets[..., None]


@dataclass(frozen=True)
class Anchor(PenaltyObjective):
    """Anchor regression with the environments as anchors.

    References
    ----------
    D. Rothenhäusler, N. Meinshausen, P. Bühlmann and J. Peters, "Anchor regression: heterogeneous
    data meet causality", JRSS B, 2021.
    """

    name = "anchor"
    is_smooth = True
    own_hyperparameters = (
        penalty_weight(
            "λ, weight of the squared mean residual; γ − 1 of anchor regression",
            domainbed=(10.0, LogUniform(1e-1, 1e3)),
        ),
    )

    def penalty(self, model: Model, batch: Batch, views: Views) -> Tensor:  # [R]
        residuals = score_residuals(model.loss, views.outputs, batch.y)  # [R, E, B, C]
        return anchor_penalty(residuals, batch.weight).mean(-1)

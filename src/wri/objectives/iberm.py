"""Information bottleneck ERM: a penalty on the variance of Φ(x).

    mean_e R_e + λ · mean_e mean_k Var_e Φ_k(x)           (Ahuja et al., 2021)

The variance stands for the entropy of Φ: of the predictors with the least risk, the one whose
representation holds least is preferred. Φ is the last hidden layer. Before the annealing step λ is
0, as in DomainBed.
"""

from dataclasses import dataclass

from torch import Tensor

from wri.objectives.base import Batch, Model, PenaltyObjective
from wri.objectives.hyperparameters import LogUniform, annealing, penalty_weight
from wri.stacked import Views


def bottleneck_penalty(features: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute the mean variance of the features of each environment.

    Parameters
    ----------
    features : Tensor of shape (..., B, F)
        Representations Φ(x) of rows.
    weight : Tensor of shape (..., B) or None, default=None
        Weights of the rows, which sum to one over B. None: equal weights.

    Returns
    -------
    penalty : Tensor of shape (...)
        Unbiased variance, averaged over the features.

    References
    ----------
    K. Ahuja et al., "Invariance Principle Meets Information Bottleneck for Out-of-Distribution
    Generalization", NeurIPS, 2021.

    Examples
    --------
    >>> import torch
    >>> from wri.objectives.functional import bottleneck_penalty
    >>> bottleneck_penalty(torch.tensor([[0.0], [2.0]])).item()
    2.0
    """
    if weight is None:
        return features.var(-2).mean(-1)
    share = weight[..., None]
    centred = features - (share * features).sum(-2, keepdim=True)
    freedom = 1 - weight.square().sum(-1)  # (n − 1)/n for n equal weights
    return (share * centred.square()).sum(-2).mean(-1) / freedom


@dataclass(frozen=True)
class IBERM(PenaltyObjective):
    """Information bottleneck ERM.

    References
    ----------
    K. Ahuja et al., "Invariance Principle Meets Information Bottleneck for Out-of-Distribution
    Generalization", NeurIPS, 2021.
    """

    name = "iberm"
    least_environments = 1
    needs_hidden = True
    own_hyperparameters = (
        penalty_weight(
            "λ, weight of the variance of Φ(x)",
            domainbed=(1e2, LogUniform(1e-1, 1e5)),
            table=(3.0, LogUniform(0.1, 1e2)),
        ),
        *annealing((50, LogUniform(1, 1e3, whole=True))),
    )

    def penalty(self, model: Model, batch: Batch, views: Views) -> Tensor:  # [R]
        return bottleneck_penalty(views.phi, batch.weight).mean(-1)

"""Spectral decoupling: a penalty on the squared outputs.

    mean_e R_e + λ · mean_e mean_b f_b²                   (Pezeshki et al., 2021)

f² is the mean over the outputs of a row, as in DomainBed. The penalty does not compare
environments: it keeps one strong feature from hiding the gradient of the others.
"""

from dataclasses import dataclass

from torch import Tensor

from wri.objectives.base import Batch, Model, PenaltyObjective
from wri.objectives.hyperparameters import LogUniform, penalty_weight
from wri.stacked import Views


@dataclass(frozen=True)
class SD(PenaltyObjective):
    """Spectral decoupling.

    References
    ----------
    M. Pezeshki, S.-O. Kaba, Y. Bengio, A. Courville, D. Precup and G. Lajoie, "Gradient Starvation:
    A Learning Proclivity in Neural Networks", NeurIPS, 2021.
    """

    name = "sd"
    least_environments = 1
    is_smooth = True
    own_hyperparameters = (
        penalty_weight(
            "λ, weight of the squared outputs",
            domainbed=(0.1, LogUniform(1e-5, 1e-1)),
            table=(0.03, LogUniform(1e-3, 1.0)),
        ),
    )

    def penalty(self, model: Model, batch: Batch, views: Views) -> Tensor:  # [R]
        return batch.mean(views.outputs.square().mean(-1)).mean(-1)

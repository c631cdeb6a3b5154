"""CLOvE, calibration loss over environments: a penalty on the calibration error of each.

    mean_e R_e + λ · mean_e MMCE²_e                       (Wald et al., 2021)
    MMCE²_e = mean over rows a, b of e of (c_a − r_a) (c_b − r_b) exp(−|r_a − r_b| / 0.4)

r is the probability of the predicted class and c whether it is right (Kumar et al., 2018). With one
output c is the target: r = σ(f) for log-odds; for squared loss c − r is the residual y − f, and the
kernel sees σ(f). A predictor that is calibrated in every environment has no penalty.

As exp(−|r_a − r_b|/w) is exp(−r_a/w) exp(r_b/w) for r_b ≤ r_a, the double sum follows from a
running sum over the rows in the order of r, in n log n time. c jumps where another class becomes
the likeliest and the kernel has a kink, so the objective is trained, not solved.
"""

from dataclasses import dataclass

from torch import Tensor

from wri.objectives.base import Batch, Model, PenaltyObjective
from wri.objectives.hyperparameters import LogUniform, penalty_weight
from wri.stacked import Loss, Views

WIDTH = 0.4  # of the kernel


def calibration_penalty(errors: Tensor, confidence: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute the squared maximum mean calibration error.

    Parameters
    ----------
    errors : Tensor of shape (..., B)
        Outcome minus prediction of each row.
    confidence : Tensor of shape (..., B)
        What the kernel compares, between 0 and 1.
    weight : Tensor of shape (..., B) or None, default=None
        Weights of the rows, which sum to one over B. None: equal weights.

    Returns
    -------
    penalty : Tensor of shape (...)
        Zero if rows with the same confidence have no error on average.

    References
    ----------
    Y. Wald, A. Feder, D. Greenfeld and U. Shalit, "On Calibration and Out-of-domain
    Generalization", NeurIPS, 2021.

    Examples
    --------
    >>> import torch
    >>> from wri.objectives.functional import calibration_penalty
    >>> half = torch.tensor([0.5, 0.5])
    >>> calibration_penalty(torch.tensor([0.5, -0.5]), half).item()
    0.0
    """
    share = errors / errors.shape[-1] if weight is None else errors * weight
    level, order = confidence.sort(-1)
    share = share.gather(-1, order)
    up, down = (level / WIDTH).exp(), (-level / WIDTH).exp()
    before = (share * up).cumsum(-1) - share * up  # of rows with lower confidence
    return (share * (share + 2 * down * before)).sum(-1)


def confidence_and_error(loss: Loss, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the kernel compares and the errors, `[...]` each, of outputs `[..., C]`."""
    if loss.classes:
        confidence, predicted = outputs.softmax(-1).max(-1)
        return confidence, (predicted == targets).to(confidence.dtype) - confidence
    confidence = outputs[..., 0].sigmoid()
    prediction = confidence if loss.name == "logistic" else outputs[..., 0]
    return confidence, targets - prediction


@dataclass(frozen=True)
class CLOvE(PenaltyObjective):
    """Calibration loss over environments.

    References
    ----------
    Y. Wald, A. Feder, D. Greenfeld and U. Shalit, "On Calibration and Out-of-domain
    Generalization", NeurIPS, 2021.
    """

    name = "clove"
    own_hyperparameters = (
        penalty_weight(
            "λ, weight of the squared calibration error", domainbed=(10.0, LogUniform(1e-1, 1e3))
        ),
    )

    def penalty(self, model: Model, batch: Batch, views: Views) -> Tensor:  # [R]
        confidence, errors = confidence_and_error(model.loss, views.outputs, batch.y)  # [R, E, B]
        return calibration_penalty(errors, confidence, batch.weight).mean(-1)

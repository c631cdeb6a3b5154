"""Penalty functions for your own training loop, on tensors with any leading axes.

    losses = loss(model(x), y)                      # [E, B]
    penalty = wri_penalty(losses, log_densities)    # [E, E, B] -> []
    (losses.mean() + 10 * penalty).backward()

`irm_penalty` takes `CROSS_ENTROPY.scale_gradient(outputs, y)`, or that of another loss.
"""

from wri.objectives.anchor import anchor_penalty
from wri.objectives.clove import calibration_penalty
from wri.objectives.coral import coral_penalty
from wri.objectives.eqrm import risk_quantile
from wri.objectives.fishr import head_gradient_variance
from wri.objectives.groupdro import groupdro_weights
from wri.objectives.iberm import bottleneck_penalty
from wri.objectives.iga import gradient_spread
from wri.objectives.irm import irm_penalty
from wri.objectives.mmd import mmd_penalty
from wri.objectives.vrex import vrex_penalty
from wri.objectives.weighted_risks import pair_weights, weighted_gaps, wri_penalty
from wri.stacked import CROSS_ENTROPY, LOGISTIC, SQUARED

__all__ = [
    "CROSS_ENTROPY",
    "LOGISTIC",
    "SQUARED",
    "anchor_penalty",
    "bottleneck_penalty",
    "calibration_penalty",
    "coral_penalty",
    "gradient_spread",
    "groupdro_weights",
    "head_gradient_variance",
    "irm_penalty",
    "mmd_penalty",
    "pair_weights",
    "risk_quantile",
    "vrex_penalty",
    "weighted_gaps",
    "wri_penalty",
]

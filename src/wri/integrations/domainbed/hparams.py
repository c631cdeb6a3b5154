"""Hyper-parameters by DomainBed's names, with defaults and ranges of wri's objectives.

DomainBed has one name for a hyper-parameter of all algorithms, such as `irm_lambda`; ours belong to
an objective. Those without a name in DomainBed get the objective's prefix: `wri_density_steps`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from wri.errors import check_option
from wri.objectives import OBJECTIVES
from wri.objectives.hyperparameters import Distribution
from wri.presets import FALLBACK
from wri.registry import OBJECTIVES as ENTRIES
from wri.training import ModelSpec

SPELLED = {"iberm": "IB_ERM", "ibirm": "IB_IRM"}
"""DomainBed's spelling where it is not our label."""

LABELS = {SPELLED.get(name, entry.label): name for name, entry in ENTRIES.items()}
"""DomainBed's spelling of an algorithm to our name: GroupDRO to groupdro."""

SHARED = {"learning_rate": "lr", "weight_decay": "weight_decay", "batch_size": "batch_size"}
"""Hyper-parameters that DomainBed registers for every algorithm."""

OWN = {
    "irm": {"penalty_weight": "irm_lambda", "anneal_steps": "irm_penalty_anneal_iters"},
    "vrex": {"penalty_weight": "vrex_lambda", "anneal_steps": "vrex_penalty_anneal_iters"},
    "groupdro": {"eta": "groupdro_eta"},
    "mixup": {"alpha": "mixup_alpha"},
    "mldg": {"beta": "mldg_beta", "meta_test": "n_meta_test"},
    "coral": {"penalty_weight": "mmd_gamma"},
    "sd": {"penalty_weight": "sd_reg"},
    "eqrm": {"quantile": "eqrm_quantile", "anneal_steps": "eqrm_burnin_iters"},
    "iga": {"penalty_weight": "penalty"},
    "iberm": {"penalty_weight": "ib_lambda", "anneal_steps": "ib_penalty_anneal_iters"},
    "ibirm": {
        "penalty_weight": "irm_lambda",
        "anneal_steps": "irm_penalty_anneal_iters",
        "bottleneck_penalty_weight": "ib_lambda",
        "bottleneck_anneal_steps": "ib_penalty_anneal_iters",
    },
    "fishr": {
        "penalty_weight": "lambda",
        "anneal_steps": "penalty_anneal_iters",
        "momentum": "ema",
    },
    "mmd": {"penalty_weight": "mmd_gamma"},
    "wri": {"penalty_weight": "wri_lambda", "anneal_steps": "wri_penalty_anneal_iters"},
}


class HparamSetting(NamedTuple):
    """Entry of DomainBed's registry: a default and a function that draws.

    Attributes
    ----------
    default : float
        Default value.
    draw : callable
        Function from a `numpy.random.RandomState` to a value.

    Examples
    --------
    >>> from wri.integrations.domainbed import hparam_settings
    >>> hparam_settings("GroupDRO")["groupdro_eta"].default
    0.01
    """

    default: float
    draw: Callable[[np.random.RandomState], float]


def domainbed_name(objective: str, parameter: str) -> str:
    """Return DomainBed's name of a hyper-parameter of an objective."""
    if parameter in SHARED:
        return SHARED[parameter]
    return OWN.get(objective, {}).get(parameter, f"{objective}_{parameter}")


def hparam_settings(algorithm: str) -> dict[str, HparamSetting]:
    """Return defaults and draws of an algorithm, for DomainBed's `hparams_registry`.

    Parameters
    ----------
    algorithm : str
        Name in DomainBed's spelling, for instance "WRI", "IRM" or "GroupDRO".

    Returns
    -------
    settings : dict of str to HparamSetting
        Default and draw by DomainBed's name. Learning rate, weight decay and batch size are not
        among them: DomainBed registers its own.

    Raises
    ------
    InputError
        If the algorithm is unknown.

    Examples
    --------
    >>> from wri.integrations.domainbed import hparam_settings
    >>> hparam_settings("IRM")["irm_lambda"].default
    100.0
    """
    check_option("algorithm", algorithm, tuple(LABELS))
    name, found = LABELS[algorithm], {}
    for parameter in OBJECTIVES[name].own_hyperparameters:
        setting = parameter.setting(FALLBACK)
        default, draw = setting.resolve(None), setting.distribution or _take_default
        own = HparamSetting(default, partial(_draw, draw, default))
        found[domainbed_name(name, parameter.name)] = own
    return found


def _draw(draw: Distribution, default: float, random: np.random.RandomState) -> float:
    return draw(random, default)


def _take_default(random: np.random.RandomState, default: float) -> float:
    return default


def read_hparams(objective: str, hparams: Mapping[str, Any]) -> dict[str, float]:
    """Return our hyper-parameters from DomainBed's, with defaults; unknown ones are ignored."""
    found = {}
    for parameter in OBJECTIVES[objective].hyperparameters():
        name = domainbed_name(objective, parameter.name)
        value = hparams.get(name, parameter.setting(FALLBACK).resolve(None))
        found[parameter.name] = replace(parameter, name=name).check(value)  # errors in their name
    return found


def write_hparams(model: ModelSpec | None) -> dict[str, float]:
    """Return a model's hyper-parameters by DomainBed's names.

    Those that depend on the number of rows and are not drawn are left out, and so are infinite
    ones, which JSON does not have.
    """
    if model is None:
        return {}
    found = {}
    for parameter in model.objective.hyperparameters():
        value = model.hyper.get(parameter.name, parameter.setting(model.preset).default)
        if not callable(value) and isfinite(value):
            found[domainbed_name(model.objective.name, parameter.name)] = value
    return found

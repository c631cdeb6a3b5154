"""Hyper-parameters under DomainBed's names, with defaults and ranges from our objectives.

DomainBed knows a hyper-parameter by one name for all algorithms, such as `irm_lambda`; ours belong
to an objective. What DomainBed has no name for is called after its objective: `wri_density_steps`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from wri.errors import check_option
from wri.objectives import OBJECTIVES
from wri.objectives.hyperparameters import HyperParameter, Setting
from wri.presets import FALLBACK
from wri.registry import OBJECTIVES as ENTRIES
from wri.training import ModelSpec

LABELS = {entry.label: name for name, entry in ENTRIES.items()}
"""DomainBed's spelling of an algorithm to our name: GroupDRO to groupdro."""

SHARED = {"learning_rate": "lr", "weight_decay": "weight_decay", "batch_size": "batch_size"}
"""Those that DomainBed registers for every algorithm by itself."""

OWN = {
    "irm": {"penalty_weight": "irm_lambda", "anneal_steps": "irm_penalty_anneal_iters"},
    "vrex": {"penalty_weight": "vrex_lambda", "anneal_steps": "vrex_penalty_anneal_iters"},
    "groupdro": {"eta": "groupdro_eta"},
    "mixup": {"alpha": "mixup_alpha"},
    "mldg": {"beta": "mldg_beta", "meta_test": "n_meta_test"},
    "coral": {"penalty_weight": "mmd_gamma"},
    "wri": {"penalty_weight": "wri_lambda", "anneal_steps": "wri_penalty_anneal_iters"},
}


class HparamSetting(NamedTuple):
    """What DomainBed's registry takes: a default and a draw from a random state."""

    default: float
    draw: Callable[[np.random.RandomState], float]


def domainbed_name(objective: str, parameter: str) -> str:
    """What DomainBed calls a hyper-parameter of an objective."""
    if parameter in SHARED:
        return SHARED[parameter]
    return OWN.get(objective, {}).get(parameter, f"{objective}_{parameter}")


def hparam_settings(algorithm: str) -> dict[str, HparamSetting]:
    """Defaults and draws of an algorithm, for DomainBed's `hparams_registry`.

    Parameters
    ----------
    algorithm
        In DomainBed's spelling: "WRI", "IRM", "GroupDRO", …

    Returns
    -------
    dict
        By DomainBed's name: the default, and a function that draws from a
        `numpy.random.RandomState`. The learning rate, weight decay and batch size are not among
        them: DomainBed registers its own.
    """
    check_option("algorithm", algorithm, tuple(LABELS))
    name = LABELS[algorithm]
    return {
        domainbed_name(name, parameter.name): _setting(parameter.setting(FALLBACK))
        for parameter in OBJECTIVES[name].own_hyperparameters
    }


def _setting(setting: Setting) -> HparamSetting:
    default = setting.resolve(None)
    if setting.distribution is None:
        return HparamSetting(default, partial(_always, value=default))
    return HparamSetting(default, partial(setting.distribution, default=default))


def _always(random: np.random.RandomState, value: float) -> float:
    return value


def read_hparams(objective: str, hparams: Mapping[str, Any]) -> dict[str, float]:
    """Our hyper-parameters from DomainBed's; defaults where one is missing, others are ignored."""
    found = {}
    for parameter in OBJECTIVES[objective].hyperparameters():
        name = domainbed_name(objective, parameter.name)
        value = hparams.get(name, parameter.setting(FALLBACK).resolve(None))
        found[parameter.name] = replace(parameter, name=name).check(value)  # errors in their name
    return found


def write_hparams(model: ModelSpec | None) -> dict[str, float]:
    """A model's hyper-parameters under DomainBed's names.

    Those that depend on the number of rows and are not drawn are left out, and so are infinite
    ones, which JSON lacks.
    """
    if model is None:
        return {}
    found = {}
    for parameter in model.objective.hyperparameters():
        value = model.hyper.get(parameter.name, _fixed_default(parameter, model.preset))
        if value is not None and isfinite(value):
            found[domainbed_name(model.objective.name, parameter.name)] = value
    return found


def _fixed_default(parameter: HyperParameter, preset: str) -> float | None:
    default = parameter.setting(preset).default
    return None if callable(default) else default

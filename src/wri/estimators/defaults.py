"""Numbers for tables that nobody tuned.

Chosen on simulated hospitals, not on anybody's data: Adam on whole environments where they are
small, its rate along half a cosine; penalties come into force after a quarter of the steps and grow
over another quarter. WRI takes overlap weights from an environment classifier on x.

The squares of IRM and WRI are taken of whole batches. The product of two half-batches is an
unbiased guess, the square less its variance, and over rows that come again at every step a
predictor learns to make that variance large (R² below 0 on simulated sites of 100 rows).
WRI's squared gap is divided by the loss, not by its square, and so has the unit of the risk that it
is added to, however small the risk is.
"""

from collections.abc import Mapping
from typing import Any

from wri.objectives import Objective, make_objective

PRESET = "wri"
WHOLE = 2048  # rows up to which environments are taken whole
BATCH = 1024  # rows of an environment in a step otherwise

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "irm": {"form": "square"},
    "wri": {"form": "square", "scaling": "product"},
}
HYPER: Mapping[str, Mapping[str, float]] = {
    "irm": {"penalty_weight": 100.0},
    "vrex": {"penalty_weight": 1e3, "weight_decay": 1e-4},
    "wri": {"penalty_weight": 100.0},
}


def tabular_objective(name: str, options: Mapping[str, Any] | None) -> Objective:
    return make_objective(name, PRESET, **{**OPTIONS.get(name, {}), **(options or {})})


def tabular_hyper(objective: Objective, largest: int, steps: int, decays: bool) -> dict[str, float]:
    """Hyper-parameters of an objective when its `largest` environment has so many rows."""
    numbers: dict[str, float] = {
        "learning_rate": 1e-2,
        "final_rate": 0.0 if decays else 1.0,
        "weight_decay": 1e-3,
        "batch_size": WHOLE if largest <= WHOLE else BATCH,
        "anneal_steps": steps // 4,
        "ramp_steps": steps // 4,
        **HYPER.get(objective.name, {}),
    }
    known = {parameter.name for parameter in objective.hyperparameters()}
    return {name: value for name, value in numbers.items() if name in known}

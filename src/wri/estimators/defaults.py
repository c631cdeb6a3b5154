"""Numbers for tables that nobody tuned.

Chosen on simulated hospitals (`benchmarks/estimator_defaults.py`), not on anybody's data: Adam on
whole environments where they are small, its rate along half a cosine; penalties come into force
after a quarter of the steps and grow over another quarter. Weights decay as if some rows more said
that they are zero, so small tables are held tighter than large ones. Linear predictors take steps
that are large enough to arrive. Losses are not divided by λ, or decay would be λ times as strong
beside the risk.

WRI takes overlap weights from a classifier of environments; a network's Φ(x) is what it sees, anew
as Φ moves, for an invariant predictor's Φ holds nothing spurious, and so neither do its weights. It
is fitted briefly: sharper weights leave fewer effective rows. The squares of IRM and WRI are taken
of whole batches. The product of two half-batches is an unbiased guess, the square less its
variance, and over rows that come again at every step a predictor learns to make that variance large
(R² below 0 on simulated sites of 100 rows). WRI's squared gap is divided by the loss, not by its
square, and so has the unit of the risk that it is added to, however small.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from wri.densities import FittedClassifier
from wri.errors import InputError
from wri.objectives import Objective, make_objective

PRESET = "wri"
WHOLE = 2048  # rows up to which environments are taken whole
BATCH = 1024  # rows of an environment in a step otherwise


class Pace(NamedTuple):
    learning_rate: float
    decay_rows: float


LINEAR, NETWORK = Pace(0.1, 3.0), Pace(0.01, 30.0)
MOST_DECAY = 0.1

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "irm": {"form": "square", "divided": False},
    "vrex": {"divided": False},
    "wri": {
        "form": "square",
        "divided": False,
        "scaling": "product",
        "density": FittedClassifier(steps=50, weight_decay=1e-2),
    },
}
HYPER: Mapping[str, Mapping[str, float]] = {
    "irm": {"penalty_weight": 100.0},
    "vrex": {"penalty_weight": 30.0},
    "wri": {"penalty_weight": 3.0, "density_every": 10},
}


def tabular_hidden(name: str, hidden: tuple[int, ...] | None) -> tuple[int, ...]:
    """Widths of the hidden layers: those given, or the objective's default."""
    if name == "coral" and hidden is not None and not len(hidden):
        raise InputError("CORAL aligns hidden layers and has none; give hidden=(32, 16), say")
    if hidden is None:
        return (32, 16) if name == "coral" else ()
    return tuple(hidden)


def tabular_objective(
    name: str, options: Mapping[str, Any] | None, hidden: tuple[int, ...]
) -> Objective:
    """An objective with the options given, defaults for the others."""
    seen = {"density_on": "phi"} if name == "wri" and hidden else {}
    return make_objective(name, PRESET, **{**OPTIONS.get(name, {}), **seen, **(options or {})})


class Task(NamedTuple):
    """What hyper-parameters depend on."""

    largest: int  # rows of the largest environment that are learned from
    rows: float  # of all environments, as many as they weigh
    hidden: tuple[int, ...]
    steps: int
    decays: bool  # whether the step size does


def tabular_hyper(objective: Objective, given: Mapping[str, float], task: Task) -> dict[str, float]:
    """The hyper-parameters given that the objective has, defaults for the others."""
    pace = NETWORK if task.hidden else LINEAR
    numbers: dict[str, float] = {
        "learning_rate": pace.learning_rate,
        "final_rate": 0.0 if task.decays else 1.0,
        "weight_decay": min(pace.decay_rows / task.rows, MOST_DECAY),
        "batch_size": WHOLE if task.largest <= WHOLE else BATCH,
        "anneal_steps": task.steps // 4,
        "ramp_steps": task.steps // 4,
        **HYPER.get(objective.name, {}),
        **given,
    }
    known = {parameter.name for parameter in objective.hyperparameters()}
    return {name: value for name, value in numbers.items() if name in known}

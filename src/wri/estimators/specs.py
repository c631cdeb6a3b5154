"""Conversion between an estimator's constructor and model specifications."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Literal, Protocol

from wri.errors import InputError
from wri.objectives import OBJECTIVES
from wri.registry import OBJECTIVES as ENTRIES
from wri.training import ModelSpec
from wri.training.spec import Solver, encode_option

PRESET = "table"
OWN_PARAMETERS = ("penalty_weight", "learning_rate", "weight_decay", "batch_size")
"""Hyper-parameters that are also parameters of the constructor."""

AUTO: Literal["auto"] = "auto"
PenaltyWeight = float | Literal["auto"] | None
LADDER = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
"""λ that "auto" chooses from, as multiples of the preset's value; 0 is ERM."""


class RequestedModel(Protocol):
    """The parameters of a constructor that describe the model."""

    _objective: str
    preset: str
    hidden: tuple[int, ...] | None
    standardise: bool | None
    solver: Solver | None
    steps: int | None
    stop_after: int | None
    penalty_weight: PenaltyWeight
    candidates: Sequence[Mapping[str, Any]] | None
    hyper: Mapping[str, float] | None
    options: Mapping[str, Any] | None
    early_stopping: bool


def make_spec(asked: RequestedModel, candidate: Mapping[str, Any] | None = None) -> ModelSpec:
    """Make the specification of a constructor, changed by a candidate.

    A candidate's keys are hyper-parameters, options of the objective, or `hidden`.
    """
    kind = OBJECTIVES[asked._objective]
    options, hidden = dict(asked.options or {}), asked.hidden
    hyper = {name: v for name in OWN_PARAMETERS if (v := getattr(asked, name)) not in (None, AUTO)}
    hyper |= dict(asked.hyper or {})
    declared = kind.hyperparameters()
    known = {parameter.name for parameter in declared}
    own_options = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    for name, value in (candidate or {}).items():
        if name == "hidden":
            hidden = value
        elif name in own_options:
            options[name] = value
        elif name in known:
            hyper[name] = value
        else:
            possible = ", ".join(["hidden", *sorted(own_options | known)])
            raise InputError(
                f"unknown hyper-parameter or option {name!r} in candidates; choose from {possible}"
            )
    in_steps = asked.early_stopping or asked.steps is not None or asked.stop_after is not None
    of_steps = {parameter.name for parameter in declared if parameter.of_steps}
    if asked.early_stopping:  # any step may be the last, so the step size must not decay
        hyper.setdefault("final_rate", 1.0)
    spec = ModelSpec.of(
        asked._objective,
        preset=asked.preset,
        hidden=None if hidden is None else tuple(hidden),
        standardise=asked.standardise,
        steps=asked.steps,
        stop_after=asked.stop_after,
        solver=asked.solver,
        hyper=hyper,
        options=options,
    )
    if asked.solver is None and (in_steps or of_steps & set(hyper)):
        return spec.in_steps()
    return spec


def make_specs(asked: RequestedModel) -> list[ModelSpec]:
    """Make one specification per candidate; with "auto" one per candidate and λ.

    A candidate that names its own penalty weight keeps it.
    """
    if asked.candidates is not None and not len(asked.candidates):
        raise InputError("candidates is empty; leave it out for the defaults")
    given = [dict(candidate) for candidate in asked.candidates or [{}]]
    if chooses_penalty(asked):
        ladder = [{"penalty_weight": weight} for weight in penalty_ladder(asked)]
        given = [{**rung, **candidate} for candidate in given for rung in ladder]
        given = [each for place, each in enumerate(given) if each not in given[:place]]
    return [make_spec(asked, candidate) for candidate in given]


class RequestedPenalty(Protocol):
    """The parameters of a constructor that describe the penalty, for any predictor."""

    _objective: str
    preset: str
    penalty_weight: PenaltyWeight
    hyper: Mapping[str, float] | None


def chooses_penalty(asked: RequestedPenalty) -> bool:
    """Whether λ is to be chosen: "auto" asks for it, `hyper` has none, and there is a penalty."""
    given = "penalty_weight" in (asked.hyper or {})
    return asked.penalty_weight == AUTO and not given and has_penalty_weight(asked._objective)


def penalty_ladder(
    asked: RequestedPenalty, centre: float | None = None, factors: Sequence[float] = LADDER
) -> list[float]:
    """Return the λ that "auto" chooses from: 0, which is ERM, and multiples of the centre.

    The centre is the preset's λ unless it is given.
    """
    if centre is None:
        centre = preset_penalty_weight(asked._objective, asked.preset) or 0.0
    return [centre * factor for factor in factors]


def preset_penalty_weight(objective: str, preset: str) -> float | None:
    """Return a preset's λ; None if the objective has no penalty."""
    for each in OBJECTIVES[objective].hyperparameters():
        if each.name == "penalty_weight":
            return each.setting(preset).resolve(None)
    return None


def path_specs(spec: ModelSpec) -> list[ModelSpec]:
    """Return a complete specification with the other λ of the ladder."""
    centre = preset_penalty_weight(spec.objective.name, spec.preset)
    if centre is None:
        return []
    weights = {centre * factor for factor in LADDER} - {spec.hyper["penalty_weight"]}
    return [
        replace(spec, hyper={**spec.hyper, "penalty_weight": weight}) for weight in sorted(weights)
    ]


def has_penalty_weight(objective: str) -> bool:
    """Return whether an objective adds a weighted penalty to the risk."""
    return any(each.name == "penalty_weight" for each in OBJECTIVES[objective].hyperparameters())


def plain_erm(spec: ModelSpec) -> ModelSpec:
    """Make the ERM specification for a single environment, with the shared settings."""
    known = {parameter.name for parameter in OBJECTIVES["erm"].hyperparameters()}
    return ModelSpec.of(
        "erm",
        preset=spec.preset,
        hidden=spec.hidden,
        standardise=spec.standardise,
        steps=spec.steps,
        stop_after=spec.stop_after,
        solver=spec.solver,
        hyper={name: value for name, value in spec.hyper.items() if name in known},
    )


def constructor_parameters(spec: ModelSpec) -> dict[str, Any]:
    """Return the constructor's arguments for a specification, without defaults."""
    given = spec.differences()
    parameters: dict[str, Any] = {}
    if spec.preset != PRESET:
        parameters["preset"] = spec.preset
    if "hidden" in given:
        parameters["hidden"] = spec.hidden
    for name in ("standardise", "solver", "steps", "stop_after"):
        if name in given:
            parameters[name] = given[name]
    if has_penalty_weight(spec.objective.name):
        parameters["penalty_weight"] = None  # the preset's, or that of hyper: nothing is chosen
    if "hyper" in given:
        parameters["hyper"] = {name: spec.hyper[name] for name in given["hyper"]}
    if "options" in given:
        parameters["options"] = {name: getattr(spec.objective, name) for name in given["options"]}
    return parameters


def python_line(spec: ModelSpec, kind: str) -> str:
    """Return the line of Python that makes the estimator; `kind` is "Classifier" or "Regressor"."""
    label = ENTRIES[spec.objective.name].label
    arguments = [f"{name}={value!r}" for name, value in constructor_parameters(spec).items()]
    return f"{label}{kind}({', '.join(arguments)})"


def plain_parameter(value: Any) -> Any:
    """Convert a constructor's argument to plain values; densities become kind and fields."""
    if isinstance(value, Mapping):
        return {name: plain_parameter(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_parameter(each) for each in value]
    try:
        return encode_option(value)
    except InputError as error:
        raise TypeError(str(error)) from error

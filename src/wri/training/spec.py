"""Model specification: all settings of a training.

    objective with its options · hidden widths · standardised or not · hyper-parameters · steps

Defaults come from a named preset. Sweeps, estimators and saved models all hold a specification, so
the same rows, specification and seed give the same predictor everywhere. A specification is
*complete* if nothing depends on the size of the data any more; a run completes its own
(`complete`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any, Literal, Self, get_args

from wri.densities import DENSITIES, Density
from wri.errors import InputError, check_option
from wri.objectives import Objective, make_objective
from wri.objectives.hyperparameters import FitSize, HyperParameter, check_names, complete
from wri.presets import FALLBACK, NETWORK, check_hidden, default_hidden, find_preset

Precision = Literal["single", "double"]
Solver = Literal["lbfgs", "adam"]


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Model specification: all settings of a training; `ModelSpec.of` fills in a preset's defaults.

    Parameters
    ----------
    objective : Objective
        What is minimised, with its options.
    preset : str
        Preset that supplies hyper-parameters that are not given.
    hidden : tuple of int or None
        Widths of the hidden layers, `()` for a linear predictor. None: half and a quarter of the
        inputs, once their number is known.
    standardise : bool
        Whether to standardise inputs, and the target of a regression, with the training rows.
    steps : int
        Number of steps for which schedules are made.
    hyper : mapping of str to float, default={}
        Given hyper-parameters.
    stop_after : int or None, default=None
        Step at which training stops, if it is before `steps`.
    precision : {"single", "double"} or None, default=None
        Precision of the training. None: by the preset and the number of training rows.
    solver : {"lbfgs", "adam"} or None, default=None
        "lbfgs" solves a linear predictor with a smooth objective on all rows, "adam" trains in
        steps. None: "lbfgs" in the preset "table" where it is possible, otherwise "adam".

    Raises
    ------
    InputError
        If a name is unknown or a value is out of range.

    Examples
    --------
    >>> from wri.training import ModelSpec
    >>> spec = ModelSpec.of("vrex", preset="table", hyper={"penalty_weight": 5.0})
    >>> spec.hidden, spec.steps, spec.differences()["hyper"]
    ((), 400, {'penalty_weight': 5.0})
    """

    objective: Objective
    preset: str
    hidden: tuple[int, ...] | None
    standardise: bool
    steps: int
    hyper: Mapping[str, float] = field(default_factory=dict)
    stop_after: int | None = None
    precision: Precision | None = None
    solver: Solver | None = None

    def __post_init__(self) -> None:
        find_preset(self.preset)
        if self.steps < 1 or not (self.stop_after is None or 1 <= self.stop_after <= self.steps):
            raise InputError(
                f"steps must be at least 1 and stop_after from 1 to steps, not {self.steps} and "
                f"{self.stop_after}"
            )
        if self.precision is not None:
            check_option("precision", self.precision, get_args(Precision))
        if self.solver is not None:
            check_option("solver", self.solver, get_args(Solver))
        if self.solver == "lbfgs" and not (self.hidden == () and self.objective.is_smooth):
            raise InputError(
                f"solver='lbfgs' needs a linear predictor, hidden=(), and a smooth objective; "
                f"{self.objective.name} with hidden layers {self.hidden} needs solver='adam'"
            )
        known = self._by_name
        check_names(known, self.hyper)
        object.__setattr__(
            self, "hyper", {name: known[name].check(value) for name, value in self.hyper.items()}
        )
        if self.hidden is not None:
            check_hidden(self.hidden)
            if self.objective.needs_hidden and not self.hidden:
                raise InputError(
                    f"{self.objective.name} aligns hidden layers but has none; give for instance "
                    "hidden=(32, 16)"
                )

    @classmethod
    def of(
        cls,
        objective: str | Objective,
        *,
        preset: str = FALLBACK,
        hidden: tuple[int, ...] | None = None,
        standardise: bool | None = None,
        steps: int | None = None,
        hyper: Mapping[str, float] | None = None,
        options: Mapping[str, Any] | None = None,
        stop_after: int | None = None,
        precision: Precision | None = None,
        solver: Solver | None = None,
    ) -> Self:
        """Make a specification from the given values and the defaults of a preset.

        Parameters
        ----------
        objective : str or Objective
            Name in the registry, made with the options of the preset and the given ones, or an
            objective.
        preset : str, default="domainbed"
            Preset of the defaults.
        hidden : tuple of int or None, default=None
            Widths of the hidden layers. None: by the preset.
        standardise : bool or None, default=None
            Whether to standardise. None: by the preset.
        steps : int or None, default=None
            Number of steps. None: by the preset.
        hyper : mapping of str to float or None, default=None
            Given hyper-parameters.
        options : mapping or None, default=None
            Options of an objective that is given by name.
        stop_after : int or None, default=None
            Step at which training stops, if it is before `steps`.
        precision : {"single", "double"} or None, default=None
            Precision of the training. None: by the preset and the number of training rows.
        solver : {"lbfgs", "adam"} or None, default=None
            How the minimum is found. None: by the preset.

        Returns
        -------
        spec : ModelSpec
            The specification.

        Raises
        ------
        InputError
            If a name is unknown or a value is out of range.
        """
        defaults = find_preset(preset)
        kind = objective if isinstance(objective, Objective) else make_objective(objective)
        if hidden is None and defaults.linear:
            hidden = NETWORK if kind.needs_hidden else ()
        if not isinstance(objective, Objective):
            objective = make_objective(objective, preset, hidden, **(options or {}))
        elif options:
            raise InputError("options need an objective's name; set them on the objective itself")
        return cls(
            objective=objective,
            preset=preset,
            hidden=None if hidden is None else tuple(hidden),
            standardise=defaults.standardise if standardise is None else standardise,
            steps=defaults.steps if steps is None else steps,
            hyper=hyper or {},
            stop_after=stop_after,
            precision=precision,
            solver=solver,
        )

    @property
    def declared(self) -> tuple[HyperParameter, ...]:
        """Hyper-parameters that the training has."""
        return self.objective.hyperparameters()

    @property
    def _by_name(self) -> dict[str, HyperParameter]:
        return {parameter.name: parameter for parameter in self.declared}

    @property
    def is_solved(self) -> bool:
        """Whether the minimum on all rows is solved for, without steps."""
        if self.solver is not None:
            return self.solver == "lbfgs"
        possible = self.hidden == () and self.objective.is_smooth and self.precision != "single"
        return find_preset(self.preset).solved and possible

    def in_steps(self) -> "ModelSpec":
        """Return the specification trained in steps, if it would be solved.

        Returns
        -------
        spec : ModelSpec
            The specification.
        """
        return replace(self, solver="adam") if self.is_solved else self

    @property
    def last_step(self) -> int:
        """Number of steps that are taken."""
        return self.stop_after or self.steps

    @property
    def full_penalty_at(self) -> int:
        """First step at which the penalty has its full weight; 0 without a penalty."""
        size = FitSize(1.0, 1, self.hidden or (), self.steps)
        known = self._by_name
        return sum(
            int(self.hyper.get(name, known[name].setting(self.preset).resolve(size)))
            for name in ("anneal_steps", "ramp_steps")
            if name in known
        )

    def fit_size(self, width: int, weight: float, largest: int) -> FitSize:
        """Return the size of a fit, on which the preset's rules depend.

        Parameters
        ----------
        width : int
            Number of inputs.
        weight : float
            Total weight of the training rows of all environments.
        largest : int
            Number of training rows of the largest environment.

        Returns
        -------
        size : FitSize
            The size.
        """
        hidden = self.hidden
        if hidden is None:
            hidden = default_hidden(width, find_preset(self.preset).layers)
        return FitSize(weight, largest, hidden, self.steps)

    def complete(self, width: int, weight: float, largest: int) -> Self:
        """Return the specification with all values set.

        Parameters
        ----------
        width : int
            Number of inputs.
        weight : float
            Total weight of the training rows of all environments.
        largest : int
            Number of training rows of the largest environment.

        Returns
        -------
        spec : ModelSpec
            The complete specification.
        """
        size = self.fit_size(width, weight, largest)
        hyper = complete(self.declared, self.hyper, self.preset, size)
        self.objective.check(hyper)
        small = weight <= find_preset(self.preset).double_up_to
        precision = self.precision or ("double" if small or self.is_solved else "single")
        return replace(self, hidden=size.hidden, hyper=hyper, precision=precision)

    def as_dict(self) -> dict[str, Any]:
        """Return all values as plain values for JSON; `from_dict` reads them.

        Returns
        -------
        values : dict
            Plain values.
        """
        return {
            "objective": self.objective.name,
            "options": {
                field.name: encode_option(getattr(self.objective, field.name))
                for field in fields(self.objective)  # type: ignore[arg-type]
            },
            "preset": self.preset,
            "hidden": None if self.hidden is None else list(self.hidden),
            "standardise": self.standardise,
            "steps": self.steps,
            "hyper": {name: "inf" if value == inf else value for name, value in self.hyper.items()},
            "stop_after": self.stop_after,
            "precision": self.precision,
            "solver": self.solver,
        }

    def differences(self) -> dict[str, Any]:
        """Return `as_dict` without the defaults of the preset.

        Ids of runs are hashes of it: an option that is added later with a default that changes
        nothing does not change them.

        Returns
        -------
        values : dict
            Plain values that differ from the preset.
        """
        mine, plain = self.as_dict(), self._by_default()
        theirs = plain.as_dict()
        options, hyper = mine.pop("options"), mine.pop("hyper")
        kept = {name: value for name, value in mine.items() if value != theirs[name]}
        kept |= {"objective": mine["objective"], "preset": mine["preset"]}
        other = {name: v for name, v in options.items() if v != theirs["options"][name]}
        drawn = {name: hyper[name] for name in hyper if not self._is_default(name)}
        return kept | ({"options": other} if other else {}) | ({"hyper": drawn} if drawn else {})

    def _by_default(self) -> "ModelSpec":
        """Return the same objective and preset with nothing else given."""
        hidden = self.hidden if find_preset(self.preset).linear else None
        options = make_objective(self.objective.name, self.preset, hidden)
        return ModelSpec.of(options, preset=self.preset)

    def _is_default(self, name: str) -> bool:
        """Return whether a hyper-parameter has its preset's value for any size of the fit."""
        default = self._by_name[name].setting(self.preset).default
        return not callable(default) and default == self.hyper[name]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make a specification from the result of `as_dict` or `differences`.

        Parameters
        ----------
        values : mapping
            Plain values.

        Returns
        -------
        spec : ModelSpec
            The specification.

        Raises
        ------
        InputError
            If a name is unknown or a value is out of range.
        """
        known = {"options", *(field.name for field in fields(cls))}
        if unknown := sorted(set(values) - known):
            raise InputError(f"a model specification has no {', '.join(map(repr, unknown))}")
        given = dict(values)
        hyper = decode_hyper(given.pop("hyper", {}))
        options = decode_options(given.pop("options", {}))
        hidden = given.pop("hidden", None)
        return cls.of(
            **given,
            hidden=None if hidden is None else tuple(hidden),
            hyper=hyper,
            options=options,
        )


def encode_option(value: Any) -> Any:
    """Encode an option of an objective as plain values; densities as kind and fields."""
    if isinstance(value, Density):
        kind = type(value).__name__
        if DENSITIES.get(kind) is not type(value):
            raise InputError(f"{kind} cannot be saved; use one of {', '.join(DENSITIES)}")
        inner = {f.name: getattr(value, f.name) for f in fields(value)}  # type: ignore[arg-type]
        return {"kind": kind, **inner}
    return value


def decode_hyper(values: Any) -> dict[str, float]:
    """Decode hyper-parameters by name."""
    return {name: inf if v == "inf" else v for name, v in _named(values, "hyper").items()}


def decode_options(values: Any) -> dict[str, Any]:
    """Decode options of an objective by name."""
    return {name: decode_option(value) for name, value in _named(values, "options").items()}


def _named(values: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise InputError(f"{what} of a model specification must be named, not {values!r:.40}")
    return values


def decode_option(value: Any) -> Any:
    """Decode the result of `encode_option`."""
    if not isinstance(value, Mapping):
        return value
    inner = dict(value)
    kind = inner.pop("kind", None)
    check_option("density", kind, tuple(DENSITIES))
    try:
        return DENSITIES[kind](**inner)
    except TypeError as error:
        raise InputError(f"{kind} has other fields: {error}") from error

"""Model specification of boosted trees.

    objective with its options · hyper-parameters of its penalty · settings of the trees

Steps are rounds. There are no hidden layers and no hyper-parameters of Adam (learning rate, weight
decay, batches).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from math import inf
from typing import Any, Self

from wri.boosting.trees import TreeSettings
from wri.errors import InputError
from wri.objectives import make_objective
from wri.objectives.hyperparameters import COMMON, HyperParameter
from wri.training.spec import ModelSpec, decode_hyper, decode_options

PRESET = "table"


@dataclass(frozen=True, kw_only=True)
class TreeSpec(ModelSpec):
    """Model specification of boosted trees; `TreeSpec.grown` fills in the defaults.

    Parameters
    ----------
    objective : Objective
        What is minimised, with its options.
    preset : str
        Preset that supplies hyper-parameters that are not given.
    hidden : tuple of int or None
        Always `()`.
    standardise : bool
        Whether to standardise the target of a regression, and the inputs of densities.
    steps : int
        Number of rounds, the same as in `trees`.
    hyper : mapping of str to float, default={}
        Given hyper-parameters.
    stop_after : int or None, default=None
        Round after which training stops, if it is before `steps`.
    precision : {"single", "double"} or None, default=None
        Precision of the objective.
    solver : {"lbfgs", "adam"} or None, default=None
        Not used: trees are grown in rounds.
    trees : TreeSettings, default=TreeSettings()
        Settings of the trees.

    Raises
    ------
    InputError
        If a name is unknown, a value is out of range, or a hyper-parameter is one of networks.

    Examples
    --------
    >>> from wri.boosting import TreeSettings, TreeSpec
    >>> spec = TreeSpec.grown("wri", TreeSettings(rounds=50))
    >>> spec.steps, spec.hyper["penalty_weight"]
    (50, 1.0)
    """

    trees: TreeSettings = field(default_factory=TreeSettings)

    def __post_init__(self) -> None:
        if odd := [each.name for each in COMMON if each.name in self.hyper]:
            raise InputError(f"trees have no hyper-parameter {odd[0]!r}, which is one of networks")
        super().__post_init__()
        if self.steps != self.trees.rounds:
            raise InputError(f"steps must be the {self.trees.rounds} rounds, not {self.steps}")

    @property
    def declared(self) -> tuple[HyperParameter, ...]:
        """Hyper-parameters of the objective alone, without those of networks."""
        return self.objective.own_hyperparameters

    @property
    def is_solved(self) -> bool:
        """Whether the minimum is solved for; never, trees are grown in rounds."""
        return False

    @classmethod
    def grown(
        cls,
        objective: str,
        trees: TreeSettings,
        *,
        hyper: Mapping[str, float] | None = None,
        options: Mapping[str, Any] | None = None,
        stop_after: int | None = None,
    ) -> Self:
        """Make a specification; the preset for tables supplies what is not given.

        Parameters
        ----------
        objective : str
            Name in the registry.
        trees : TreeSettings
            Settings of the trees.
        hyper : mapping of str to float or None, default=None
            Hyper-parameters of the objective.
        options : mapping of str to Any or None, default=None
            Options of the objective.
        stop_after : int or None, default=None
            Round after which training stops.

        Returns
        -------
        spec : TreeSpec
            The specification.
        """
        made = make_objective(objective, PRESET, (), **(options or {}))
        weight = made.tree_penalty_weight
        own = {} if weight is None else {"penalty_weight": weight}
        return cls(
            objective=made,
            preset=PRESET,
            hidden=(),
            standardise=True,
            steps=trees.rounds,
            hyper={**own, **(hyper or {})},
            stop_after=stop_after,
            precision="double",
            trees=trees,
        )

    @property
    def compares(self) -> bool:
        """Whether there is a penalty, so that row weights depend on scores."""
        return self.objective.least_environments > 1 and self.hyper.get("penalty_weight", inf) > 0

    def complete(self, width: int, weight: float, largest: int) -> Self:
        """Fill in all settings that depend on the size of the training rows.

        Parameters
        ----------
        width : int
            Number of columns.
        weight : float
            Total weight of the training rows.
        largest : int
            Number of rows of the largest environment.

        Returns
        -------
        spec : TreeSpec
            Complete specification.
        """
        completed = super().complete(width, weight, largest)
        return replace(completed, trees=self.trees.complete(weight))

    def as_dict(self) -> dict[str, Any]:
        """Return all settings as plain values for JSON; `from_dict` reads them.

        Returns
        -------
        values : dict
            Settings by name.
        """
        every = super().as_dict()
        kept = {name: every[name] for name in ("objective", "options", "hyper", "stop_after")}
        return {**kept, "trees": asdict(self.trees)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make a specification from the values of `as_dict`.

        Parameters
        ----------
        values : mapping of str to Any
            Settings by name.

        Returns
        -------
        spec : TreeSpec
            The specification.

        Raises
        ------
        InputError
            If a setting is missing, unknown or out of range.
        """
        known = {"objective", "options", "hyper", "stop_after", "trees"}
        if odd := sorted(set(values) ^ known):
            raise InputError(f"a specification of trees has missing or unknown {', '.join(odd)}")
        settings = {each.name for each in fields(TreeSettings)}
        if odd := sorted(set(values["trees"]) ^ settings):
            raise InputError(f"settings of trees are missing or unknown: {', '.join(odd)}")
        return cls.grown(
            values["objective"],
            TreeSettings(**values["trees"]),
            hyper=decode_hyper(values["hyper"]),
            options=decode_options(values["options"]),
            stop_after=values["stop_after"],
        )

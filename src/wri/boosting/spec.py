"""What boosted trees are trained for and how they grow, said once.

    objective with its options · hyper-parameters of its penalty · how trees grow

A model specification whose predictor is a forest: steps are rounds, there are no hidden layers, and
what belongs to Adam (learning rate, decay, batches) is not there.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from math import inf
from typing import Any, Self

from wri.boosting.trees import TreeSettings
from wri.errors import InputError
from wri.objectives import make_objective
from wri.objectives.hyperparameters import COMMON, complete
from wri.training.spec import ModelSpec, decode_option

PRESET = "table"
PENALTY_WEIGHTS: Mapping[str, float] = {"wri": 5.0}
"""λ where none is given and that of tables, which was chosen for networks, is not the best."""
OF_NETWORKS = tuple(parameter.name for parameter in COMMON)


@dataclass(frozen=True, kw_only=True)
class TreeSpec(ModelSpec):
    """A model specification for trees.

    Parameters
    ----------
    trees
        How they grow; `rounds` is the number of steps.
    """

    trees: TreeSettings = field(default_factory=TreeSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if odd := [name for name in self.hyper if name in OF_NETWORKS]:
            raise InputError(f"trees have no hyper-parameter {odd[0]!r}, which is one of networks")
        if self.steps != self.trees.rounds:
            raise InputError(f"steps must be the {self.trees.rounds} rounds, not {self.steps}")

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
        """A specification from what is given; the rest by the preset for tables.

        Parameters
        ----------
        objective
            A name in the registry.
        trees
            How they grow.
        hyper, options
            Of the objective.
        stop_after
            Rounds after which training stops.
        """
        return cls(
            objective=make_objective(objective, PRESET, (), **(options or {})),
            preset=PRESET,
            hidden=(),
            standardise=True,
            steps=trees.rounds,
            hyper={**_penalty_weight(objective), **(hyper or {})},
            stop_after=stop_after,
            precision="double",
            trees=trees,
        )

    @property
    def compares(self) -> bool:
        """Whether the rows' weights depend on their scores, so that gaps could be memorised."""
        return self.objective.name != "erm" and self.hyper.get("penalty_weight", inf) > 0

    def complete(self, width: int, weight: float, largest: int) -> "TreeSpec":
        size = self.fit_size(width, weight, largest)
        declared = self.objective.hyperparameters()
        own = [parameter for parameter in declared if parameter.name not in OF_NETWORKS]
        hyper = complete(own, self.hyper, self.preset, size)
        self.objective.check(hyper)
        return replace(self, hyper=hyper, trees=self.trees.complete(weight))

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON; `from_dict` reads it."""
        every = super().as_dict()
        kept = {name: every[name] for name in ("objective", "options", "hyper", "stop_after")}
        return {**kept, "trees": asdict(self.trees)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """What `as_dict` wrote."""
        known = {"objective", "options", "hyper", "stop_after", "trees"}
        if odd := sorted(set(values) ^ known):
            raise InputError(f"a specification of trees has missing or unknown {', '.join(odd)}")
        settings = {each.name for each in fields(TreeSettings)}
        if odd := sorted(set(values["trees"]) ^ settings):
            raise InputError(f"settings of trees are missing or unknown: {', '.join(odd)}")
        return cls.grown(
            values["objective"],
            TreeSettings(**values["trees"]),
            hyper={name: inf if v == "inf" else v for name, v in values["hyper"].items()},
            options={name: decode_option(v) for name, v in values["options"].items()},
            stop_after=values["stop_after"],
        )


def _penalty_weight(objective: str) -> dict[str, float]:
    own = PENALTY_WEIGHTS.get(objective)
    return {} if own is None else {"penalty_weight": own}

"""Specifications of trees from an estimator's constructor, and the runs of one fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from wri.boosting import TreeRecord, TreeRun, TreeSettings, TreeSpec, train_trees
from wri.boosting.spec import OF_NETWORKS
from wri.errors import InputError
from wri.estimators.search import Problem
from wri.estimators.specs import AUTO, PenaltyWeight, chooses_penalty, penalty_ladder
from wri.objectives import OBJECTIVES
from wri.progress import Progress
from wri.training import ModelSpec

GROWTH = tuple(each.name for each in fields(TreeSettings))
MOST_CHOOSING = 1000  # rows per environment that choose λ only
LADDER = (0.0, 1.0, 5.0)
"""λ that "auto" chooses from, as multiples of the default: few, because trees are not solved."""


class RequestedTrees(Protocol):
    """The parameters of a constructor that describe the trees."""

    _objective: str
    preset: str
    rounds: int
    leaves: int
    least_rows: int | None
    learning_rate: float
    l2: float
    penalty_weight: PenaltyWeight
    candidates: Sequence[Mapping[str, Any]] | None
    hyper: Mapping[str, float] | None
    options: Mapping[str, Any] | None
    early_stopping: bool


def make_tree_spec(asked: RequestedTrees, candidate: Mapping[str, Any] | None = None) -> TreeSpec:
    """Make the specification of a constructor, changed by a candidate.

    A candidate's keys are settings of the trees, hyper-parameters or options of the objective.
    """
    kind = OBJECTIVES[asked._objective]
    growth = {name: getattr(asked, name) for name in GROWTH}
    options: dict[str, Any] = dict(asked.options or {})
    hyper: dict[str, Any] = dict(asked.hyper or {})
    if asked.penalty_weight not in (None, AUTO):
        hyper["penalty_weight"] = asked.penalty_weight
    known = {each.name for each in kind.hyperparameters()} - set(OF_NETWORKS)
    own_options = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    for name, value in (candidate or {}).items():
        if name in GROWTH:
            growth[name] = value
        elif name in own_options:
            options[name] = value
        elif name in known:
            hyper[name] = value
        else:
            possible = ", ".join([*GROWTH, *sorted(own_options | known)])
            raise InputError(f"unknown setting {name!r} in candidates; choose from {possible}")
    return TreeSpec.grown(asked._objective, TreeSettings(**growth), hyper=hyper, options=options)


def make_tree_specs(asked: RequestedTrees) -> list[ModelSpec]:
    """Make one specification per candidate; with "auto" one per candidate and λ."""
    if asked.candidates is not None and not asked.candidates:
        raise InputError("candidates is empty; leave it out for the defaults")
    given = [dict(candidate) for candidate in asked.candidates or [{}]]
    if chooses_penalty(asked):
        centre = OBJECTIVES[asked._objective].tree_penalty_weight
        weights = penalty_ladder(asked, centre, LADDER)
        ladder = [{"penalty_weight": weight} for weight in weights]
        given = [{**rung, **candidate} for candidate in given for rung in ladder]
        given = [each for place, each in enumerate(given) if each not in given[:place]]
    specs: list[ModelSpec] = [make_tree_spec(asked, candidate) for candidate in given]
    if asked.early_stopping and len({spec.steps for spec in specs}) > 1:
        raise InputError("early_stopping chooses the rounds; leave rounds out of candidates")
    return specs


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeProblem(Problem):
    """What all runs of trees of one fit share."""

    categorical: tuple[int, ...] = ()

    @property
    def trusts_preset(self) -> bool:
        """Whether the preset's λ costs little where nothing changes; not on small tables."""
        return False

    def _make_run(
        self, spec: ModelSpec, rows: Sequence[np.ndarray], evaluate: Mapping[str, np.ndarray]
    ) -> TreeRun:
        return TreeRun(
            spec,
            self.bank,
            rows,
            seed=self.seed,
            evaluate=evaluate,
            categorical=self.categorical,
        )

    def train(self, runs: Sequence[TreeRun], every: int, progress: Progress) -> list[TreeRecord]:
        return train_trees(runs, every=every, n_jobs=self.n_jobs, progress=progress)

    def _most_choosing(self, candidates: int) -> int:
        return MOST_CHOOSING

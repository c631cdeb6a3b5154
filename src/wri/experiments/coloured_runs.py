"""Runs on coloured digits that are not drawn: variants with fixed numbers, a trial each."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from wri.experiments.coloured import TEST, TRAINING
from wri.objectives import Objective
from wri.progress import Progress
from wri.sweep import Data, Outcome, seed_hash
from wri.training import Record, Run, train

Kind = TypeVar("Kind", bound=Objective)


class Variant(NamedTuple, Generic[Kind]):
    objective: Kind
    hyper: Mapping[str, float] = MappingProxyType({})
    preset: str = "wri"
    features: str | None = None  # others than the table's


def train_variants(
    data: Mapping[str | None, Data],
    variants: Mapping[str, Variant[Any]],
    trials: Sequence[int],
    steps: int,
    progress: Progress,
) -> dict[str, list[Record]]:
    """Records of every variant, one for each trial; initial weights and batches are common."""
    runs = []
    for variant in variants.values():
        chosen = data[variant.features]
        for trial in trials:
            splits = chosen.splits(trial)
            train_on = [splits[f"env{e}_in"] for e in TRAINING]
            seed = seed_hash(chosen.name, "variant", trial)
            options = variant.hyper, seed, splits, None, variant.preset
            runs.append(Run(variant.objective, chosen.bank, train_on, *options))
    records = iter(train(runs, steps, progress=progress))
    return {name: [next(records) for _ in trials] for name in variants}


def as_outcome(name: str, dataset: str, trial: int, record: Record) -> Outcome:
    """A record as the selections read it: a sweep with a single draw."""
    accuracy = record.measures["accuracy"]
    return Outcome(dataset, name, (TEST,), 0, trial, record.steps, accuracy, record.diverged_at)

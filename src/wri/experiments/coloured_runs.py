"""Runs on coloured digits that are not drawn: variants with fixed numbers, a trial each."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wri.experiments.coloured import TEST, TRAINING
from wri.progress import Progress
from wri.sweep import Data, Outcome, seed_hash
from wri.training import ModelSpec, Record, Run, train


class Variant(NamedTuple):
    """A line of a table: what is trained, and on which features."""

    spec: ModelSpec
    features: str | None = None  # others than the table's


def train_variants(
    data: Mapping[str | None, Data],
    variants: Mapping[str, Variant],
    trials: Sequence[int],
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
            runs.append(Run(variant.spec, chosen.bank, train_on, seed=seed, evaluate=splits))
    records = iter(train(runs, progress=progress))
    return {name: [next(records) for _ in trials] for name in variants}


def as_outcome(name: str, dataset: str, trial: int, record: Record) -> Outcome:
    """A record as the selections read it: a sweep with a single draw."""
    return Outcome(
        dataset=dataset,
        algorithm=name,
        test_envs=(TEST,),
        hparams_seed=0,
        trial_seed=trial,
        steps=record.steps,
        measures=record.measures,
        diverged_at=record.diverged_at,
    )

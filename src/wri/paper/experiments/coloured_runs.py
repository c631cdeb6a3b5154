"""Runs on coloured digits with fixed hyper-parameters: variants, one run per draw."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from wri.paper.experiments.coloured import TEST, TRAINING, ColouredData
from wri.progress import Progress
from wri.sweep import Outcome, seed_hash
from wri.training import Bank, ModelSpec, Record, Run, train

SIDE = "digit's side"
"""The test environment with 1[digit < 5] as the target, for runs that learn it."""


class Variant(NamedTuple):
    """Line of a table: what is trained, and on which features."""

    spec: ModelSpec
    features: str | None = None  # others than the table's
    on_digits: bool = False  # learn the digit's side instead of the label


def train_variants(
    data: Mapping[str | None, ColouredData],
    variants: Mapping[str, Variant],
    draw: int,
    progress: Progress,
) -> dict[str, Record]:
    """Train one run per variant; split, initial weights and batches are the same."""
    kinds = {variant.features for variant in variants.values() if variant.on_digits}
    sides = {kind: with_digit_sides(data[kind]) for kind in kinds}
    runs = []
    for variant in variants.values():
        chosen = data[variant.features]
        splits = chosen.splits(draw)
        train_on = [splits[f"env{e}_in"] for e in TRAINING]
        bank = chosen.bank
        if variant.on_digits:
            count = len(bank.targets)
            bank, train_on = sides[variant.features], [rows + count for rows in train_on]
            splits |= {SIDE: chosen.rows[TEST] + count}
        seed = seed_hash(chosen.name, "variant", draw)
        runs.append(Run(variant.spec, bank, train_on, seed=seed, evaluate=splits))
    return dict(zip(variants, train(runs, progress=progress), strict=True))


def with_digit_sides(data: ColouredData) -> Bank:
    """Return the bank, and all its rows again with the digit's side, 1[digit < 5], as target."""
    bank, sides = data.bank, (data.digits < 5).astype(data.bank.targets.dtype)
    return replace(
        bank,
        features=np.concatenate([bank.features, bank.features]),
        targets=np.concatenate([bank.targets, sides]),
    )


def as_outcome(name: str, dataset: str, draw: int, record: Record) -> Outcome:
    """Return a record for the selections: a sweep with a single draw of hyper-parameters."""
    return Outcome(
        dataset=dataset,
        algorithm=name,
        test_envs=(TEST,),
        hparams_seed=0,
        trial_seed=draw,
        steps=record.steps,
        measures=record.measures,
        diverged_at=record.diverged_at,
    )

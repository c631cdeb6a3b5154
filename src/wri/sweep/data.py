"""The rows of a sweep: a built-in data set by name, or a table from a file."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from wri.datasets import Environment, load_named, read_table
from wri.errors import InputError
from wri.sweep.outcomes import Described
from wri.sweep.spaces import seed_hash
from wri.training import Bank

HOLDOUT = 0.2  # share of an environment's rows that is never trained on


@dataclass(frozen=True, eq=False)
class Data:
    """A data set of a sweep: one bank of all environments' rows.

    Parameters
    ----------
    name
        What records and tables call it.
    names
        Of the environments.
    bank
        Their rows one after the other.
    sizes
        Rows of each.
    """

    name: str
    names: tuple[str, ...]
    bank: Bank
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.names) < 2:
            raise InputError(
                f"data set {self.name!r} has {len(self.names)} environment; a sweep holds one out "
                "and trains on the others, so at least two are needed"
            )
        for name, size in zip(self.names, self.sizes, strict=True):
            if int(size * HOLDOUT) < 1:
                raise InputError(
                    f"environment {name!r} of data set {self.name!r} has {size} rows; a fifth of "
                    "each is held back, so at least 5 are needed: drop or merge it"
                )

    @cached_property
    def fingerprint(self) -> str:
        """Of names and rows, so that changed data are other runs."""
        digest = hashlib.sha256(repr((self.names, self.sizes, self.bank.loss.name)).encode())
        for rows in (self.bank.features, self.bank.targets):
            digest.update(np.ascontiguousarray(rows).data)
        return digest.hexdigest()[:16]

    @cached_property
    def described(self) -> Described:
        shares = [np.bincount(self.bank.targets[rows].astype(int)).max() for rows in self.rows]
        constant = [float(most) / size for most, size in zip(shares, self.sizes, strict=True)]
        held_back = [int(size * HOLDOUT) / size for size in self.sizes]
        return Described(self.name, self.names, tuple(constant), tuple(held_back))

    @property
    def rows(self) -> list[np.ndarray]:
        ends = np.cumsum(self.sizes)
        return [np.arange(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]

    def splits(self, trial_seed: int) -> dict[str, np.ndarray]:
        """ "env0_in", "env0_out", "env1_in", …: DomainBed's split of each environment."""
        splits = {}
        for e, rows in enumerate(self.rows):
            order = list(range(len(rows)))
            np.random.RandomState(seed_hash(trial_seed, e)).shuffle(order)
            out = int(len(rows) * HOLDOUT)
            splits[f"env{e}_in"], splits[f"env{e}_out"] = rows[order[out:]], rows[order[:out]]
        return splits


def gather(name: str, environments: Sequence[Environment], classes: int | None = None) -> Data:
    """Environments as one data set of a sweep."""
    bank = Bank(
        np.concatenate([e.x for e in environments]),
        np.concatenate([e.y for e in environments]),
        classes=classes,
    )
    names = tuple(e.name for e in environments)
    return Data(name, names, bank, tuple(len(e.y) for e in environments))


def load_data(
    names: Sequence[str], path: Path | None, target: str | None, environment: str | None
) -> list[Data]:
    """Built-in data sets by their names, and a file by its columns.

    Features are used as they are in the file; scale them first where their units differ.
    """
    found = [gather(name, load_named(name)) for name in dict.fromkeys(names)]
    if path is not None:
        if target is None or environment is None:
            raise InputError(
                "--data needs --target and --env: the columns of label and environment"
            )
        table = read_table(path, target, environment)
        found.append(gather(path.stem, table.environments, len(table.classes)))
    if not found:
        raise InputError("name a data set by --datasets, or a file by --data")
    return found

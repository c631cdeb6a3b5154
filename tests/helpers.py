"""Small data that many tests share."""

import json
import os
import signal
import warnings
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from wri.sweep.data import SweepData
from wri.sweep.selection import DatasetInfo, Outcome
from wri.testing import make_bank as make_bank  # shared with the contract's checks
from wri.training import Bank, ModelSpec, Run, train_stack

needs_root = pytest.mark.skipif(
    getattr(os, "geteuid", lambda: 1)() != 0,  # Windows has no such function
    reason="mounting a file system needs root",
)


def make_data(environments=4, rows=20, name="toy", seed=0):
    """A data set for sweeps: six features, three classes."""
    random = np.random.default_rng(seed)
    n = environments * rows
    bank = Bank(random.normal(size=(n, 6)), np.arange(n) % 3)
    names = tuple(f"site {e}" for e in range(environments))
    return SweepData(name=name, names=names, bank=bank, sizes=(rows,) * environments)


def as_module(network, row):
    """The same network as an `nn.Sequential`, from one run's parameters."""
    layers = []
    pieces = network.packing.views(torch.as_tensor(row)[None])
    for weight, bias in zip(pieces[::2], pieces[1::2], strict=True):
        linear = nn.Linear(weight.shape[-1], weight.shape[-2], dtype=torch.float64)
        linear.weight.data, linear.bias.data = weight[0, 0].clone(), bias[0, 0, :, 0].clone()
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def make_run(
    objective,
    bank,
    train,
    hyper=None,
    seed=0,
    evaluate=None,
    hidden=None,
    preset="domainbed",
    **settings,
):
    """A run from an objective, in a preset."""
    spec = ModelSpec.of(objective, preset=preset, hidden=hidden, hyper=hyper, **settings)
    return Run(spec, bank, train, seed=seed, evaluate=evaluate or {})


def train_steps(runs, steps, checkpoint_every=10, measures=None, dtype=torch.float32):
    """Records of a stack that takes so many steps in a precision."""
    precision = "double" if dtype is torch.float64 else "single"
    runs = [with_spec(run, steps=steps, precision=precision) for run in runs]
    return train_stack(runs, checkpoint_every=checkpoint_every, measures=measures)


def with_spec(run, **changes):
    """The run with another specification."""
    return replace(run, spec=replace(run.spec, **changes))


def make_outcome(dataset, algorithm, test_envs, draw, trial, steps, accuracy, **others):
    """A run of a sweep by its accuracies."""
    return Outcome(
        dataset=dataset,
        algorithm=algorithm,
        test_envs=test_envs,
        hparams_seed=draw,
        trial_seed=trial,
        steps=steps,
        measures={"accuracy": accuracy},
        **others,
    )


def make_info(name, environments, constant_accuracy, held_back):
    """A data set by the accuracy of a constant in each environment."""
    constant = {"accuracy": constant_accuracy}
    return DatasetInfo(name=name, environments=environments, constant=constant, held_back=held_back)


def write_run(folder, dataset, algorithm, test_envs, checkpoints, draw=0, trial=0, **others):
    """A run as DomainBed writes it; checkpoints are step -> (in, out) of each environment."""
    folder.mkdir(parents=True)
    args = {"dataset": dataset, "algorithm": algorithm, "test_envs": test_envs}
    args |= {"hparams_seed": draw, "trial_seed": trial, "seed": 1, "holdout_fraction": 0.2}
    lines = [
        {"args": args, "hparams": {"lr": 1e-3}, "step": step, "loss": 0.5}
        | {f"env{k}_in_acc": inside for k, (inside, _) in enumerate(values)}
        | {f"env{k}_out_acc": outside for k, (_, outside) in enumerate(values)}
        | others
        for step, values in checkpoints.items()
    ]
    (folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "done").write_text("done")


@contextmanager
def forked(work):
    """Another process that does some work and then waits; it is killed at the end.

    It has what this one has imported, so it need not import PyTorch. Yields what `work` returned,
    as a text; an empty one if it was killed.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads of this process
        pid = os.fork()
    if not pid:
        try:
            os.write(writing, str(work()).encode())
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        while True:
            signal.pause()
    os.close(writing)
    try:
        yield os.read(reading, 4096).decode()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)

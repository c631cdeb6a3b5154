"""Training of stacks of runs: model specification, runs, batch sampling and the loop."""

from wri.training.runs import Bank, Record, Run, Units
from wri.training.scheduling import (
    choose_device,
    finished_stacks,
    plan_stacks,
    train,
    train_stack,
)
from wri.training.spec import ModelSpec

__all__ = [
    "Bank",
    "ModelSpec",
    "Record",
    "Run",
    "Units",
    "choose_device",
    "finished_stacks",
    "plan_stacks",
    "train",
    "train_stack",
]

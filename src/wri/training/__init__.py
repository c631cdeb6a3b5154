"""Training of stacks of runs: model specification, runs, batch sampling and the loop."""

from wri.training.loop import choose_device, train_stack
from wri.training.records import Record
from wri.training.runs import Bank, Run, Units
from wri.training.scheduling import FinishedStack, finished_stacks, train
from wri.training.spec import ModelSpec
from wri.training.stacks import plan_stacks

__all__ = [
    "Bank",
    "FinishedStack",
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

"""Batch sampling, the loop, checkpoints: how a stack of runs is trained."""

from wri.training.loop import Record, choose_device, train, train_stack
from wri.training.runs import Bank, Run
from wri.training.stacks import plan_stacks

__all__ = ["Bank", "Record", "Run", "choose_device", "plan_stacks", "train", "train_stack"]

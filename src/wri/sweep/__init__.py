"""Sweeps: hyper-parameter draws, plan, store, back ends, selection and tables."""

from wri.sweep.data import SweepData, gather, load_data, reload, seed_hash
from wri.sweep.plan import RunSpec, SweepSpec, draw, run_seed
from wri.sweep.selection import (
    SELECTIONS,
    BestModel,
    DatasetInfo,
    Outcome,
    SelectedCheckpoint,
    beats_constant,
    best_model,
    choose,
)
from wri.sweep.store import Store
from wri.sweep.sweep import Forecast, Sweep, forecast, open_backend, run_sweep

__all__ = [
    "SELECTIONS",
    "BestModel",
    "DatasetInfo",
    "Forecast",
    "Outcome",
    "RunSpec",
    "SelectedCheckpoint",
    "Store",
    "Sweep",
    "SweepData",
    "SweepSpec",
    "beats_constant",
    "best_model",
    "choose",
    "draw",
    "forecast",
    "gather",
    "load_data",
    "open_backend",
    "reload",
    "run_seed",
    "run_sweep",
    "seed_hash",
]

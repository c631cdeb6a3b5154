"""Sweeps: hyper-parameter draws, plan, store, back ends, selection and tables."""

from wri.sweep.backend import Backend, open_backend, run_sweep
from wri.sweep.best import BestModel, best_model
from wri.sweep.data import SweepData, gather, load_data, reload, seed_hash
from wri.sweep.forecast import Forecast, forecast
from wri.sweep.outcomes import DatasetInfo, Outcome
from wri.sweep.plan import RunSpec, SweepSpec, draw, run_seed
from wri.sweep.selection import SELECTIONS, SelectedCheckpoint, beats_constant, choose
from wri.sweep.store import Store
from wri.sweep.sweep import Sweep

__all__ = [
    "SELECTIONS",
    "Backend",
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

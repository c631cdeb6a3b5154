"""Sweeps: hyper-parameter draws, plan, store, back ends, selection and tables."""

from wri.sweep.backend import Backend
from wri.sweep.best import BestModel, best_model
from wri.sweep.data import SweepData, gather, load_data, reload
from wri.sweep.forecast import Forecast, forecast
from wri.sweep.outcomes import DatasetInfo, Outcome
from wri.sweep.plan import RunSpec, SweepSpec
from wri.sweep.running import open_backend, run_sweep
from wri.sweep.selection import SELECTIONS, SelectedCheckpoint, beats_constant, choose
from wri.sweep.spaces import draw, run_seed, seed_hash
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

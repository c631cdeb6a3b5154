"""Sweeps: hyper-parameter draws, plan, store, local back end, selection and tables."""

from wri.sweep.best import BestModel, best_model
from wri.sweep.data import Data, gather, load_data, reload
from wri.sweep.forecast import Forecast, forecast
from wri.sweep.local import run_sweep
from wri.sweep.outcomes import DatasetInfo, Outcome
from wri.sweep.plan import RunSpec, SweepSpec
from wri.sweep.selection import SELECTIONS, Choice, beats_constant, choose
from wri.sweep.spaces import draw, seed_hash
from wri.sweep.store import Store
from wri.sweep.sweep import Sweep

__all__ = [
    "SELECTIONS",
    "BestModel",
    "Choice",
    "Data",
    "DatasetInfo",
    "Forecast",
    "Outcome",
    "RunSpec",
    "Store",
    "Sweep",
    "SweepSpec",
    "beats_constant",
    "best_model",
    "choose",
    "draw",
    "forecast",
    "gather",
    "load_data",
    "reload",
    "run_sweep",
    "seed_hash",
]

"""Sweeps: hyper-parameter draws, plan, store, local back end, selection and tables."""

from wri.sweep.data import Data, gather, load_data
from wri.sweep.local import Forecast, Sweep, forecast, run_sweep
from wri.sweep.outcomes import Described, Outcome
from wri.sweep.plan import Planned, Question
from wri.sweep.selection import SELECTIONS, Choice, beats_constant, choose
from wri.sweep.spaces import draw, seed_hash
from wri.sweep.store import Store

__all__ = [
    "SELECTIONS",
    "Choice",
    "Data",
    "Described",
    "Forecast",
    "Outcome",
    "Planned",
    "Question",
    "Store",
    "Sweep",
    "beats_constant",
    "choose",
    "draw",
    "forecast",
    "gather",
    "load_data",
    "run_sweep",
    "seed_hash",
]

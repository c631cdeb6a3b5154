"""Hyper-parameter draws for sweeps."""

from wri.sweep.spaces import draw, seed_hash

__all__ = ["draw", "seed_hash"]

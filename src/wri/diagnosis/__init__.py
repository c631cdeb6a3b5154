"""Diagnostics of environments and models: overlap, changing relations, weighted risks."""

from wri.diagnosis.changing_features import ChangingFeatures, changing_features
from wri.diagnosis.design import DesignPosition, design_position
from wri.diagnosis.losses import LeftOutLosses
from wri.diagnosis.overlap import Overlap, environment_overlap
from wri.diagnosis.position import (
    GeneralPosition,
    WeightedMoments,
    empirical_moments,
    gaussian_moments,
    general_position,
)
from wri.diagnosis.risk_gaps import RiskGaps, risk_gaps
from wri.diagnosis.stress import StressTest, stress_test
from wri.diagnosis.weights import (
    bernstein_bound,
    effective_sample_size,
    environment_logs,
    row_weights,
)

__all__ = [
    "ChangingFeatures", "DesignPosition", "GeneralPosition", "LeftOutLosses", "Overlap", "RiskGaps",
    "StressTest", "WeightedMoments", "bernstein_bound", "changing_features", "design_position",
    "effective_sample_size", "empirical_moments", "environment_logs", "environment_overlap",
    "gaussian_moments", "general_position", "risk_gaps", "row_weights", "stress_test",
]  # fmt: skip

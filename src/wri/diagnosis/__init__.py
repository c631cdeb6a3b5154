"""Do the environments differ enough, and in what."""

from wri.diagnosis.position import GeneralPosition, general_position
from wri.diagnosis.weight_quality import bernstein_bound, effective_sample_size
from wri.diagnosis.weighted_moments import (
    WeightedMoments,
    empirical_moments,
    gaussian_moments,
    row_weights,
)

__all__ = [
    "GeneralPosition",
    "WeightedMoments",
    "bernstein_bound",
    "effective_sample_size",
    "empirical_moments",
    "gaussian_moments",
    "general_position",
    "row_weights",
]

"""Out-of-distribution scores: evidence for rows, and measures of scores."""

from wri.ood.evidence import Densities, Evidence, combine, common_scaling
from wri.ood.measures import RiskCoverage, auroc, detection_rates, risk_coverage

__all__ = [
    "Densities", "Evidence", "RiskCoverage", "auroc", "combine", "common_scaling",
    "detection_rates", "risk_coverage",
]  # fmt: skip

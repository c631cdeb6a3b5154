"""What is common and what is strange: evidence for rows, and measures of scores."""

from wri.ood.evidence import Densities, Evidence, Units, combine
from wri.ood.measures import RiskCoverage, auroc, detection_rates, risk_coverage

__all__ = [
    "Densities",
    "Evidence",
    "RiskCoverage",
    "Units",
    "auroc",
    "combine",
    "detection_rates",
    "risk_coverage",
]

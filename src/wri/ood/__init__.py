"""What is common and what is strange: evidence for rows, and measures of scores."""

from wri.ood.evidence import Evidence
from wri.ood.measures import RiskCoverage, auroc, detection_rates, risk_coverage

__all__ = ["Evidence", "RiskCoverage", "auroc", "detection_rates", "risk_coverage"]

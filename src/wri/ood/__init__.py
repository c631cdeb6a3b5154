"""What is common and what is strange: measures of scores that tell the two apart."""

from wri.ood.measures import auroc, detection_rates

__all__ = ["auroc", "detection_rates"]

"""Weighted risk invariance: predictors that hold in a new environment."""

from importlib.metadata import version

from wri.errors import InputError

__version__ = version("weighted-risk-invariance")
__all__ = ["InputError", "__version__"]

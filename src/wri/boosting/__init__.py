"""Objectives for boosted trees: from scores to the gradient and curvature of every row."""

from wri.boosting.row_weights import RowWeights, WeightedRows
from wri.boosting.trees import Trees, TreeSettings, grow

__all__ = ["RowWeights", "TreeSettings", "Trees", "WeightedRows", "grow"]

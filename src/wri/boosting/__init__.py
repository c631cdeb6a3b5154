"""Boosted trees: gradients of an objective per row, forests, specifications and runs."""

from wri.boosting.row_weights import WeightedRows
from wri.boosting.runs import ColumnView, TreeSpec
from wri.boosting.trees import Trees, TreeSettings, grow

__all__ = ["ColumnView", "TreeSettings", "TreeSpec", "Trees", "WeightedRows", "grow"]

"""Boosted trees: gradients of an objective per row, forests, specifications and runs."""

from wri.boosting.column_view import ColumnView, fill_gaps
from wri.boosting.row_weights import RowWeights, WeightedRows
from wri.boosting.runs import TreeRecord, TreeRun, class_outputs, train_trees
from wri.boosting.spec import TreeSpec
from wri.boosting.trees import Trees, TreeSettings, grow

__all__ = [
    "ColumnView",
    "RowWeights",
    "TreeRecord",
    "TreeRun",
    "TreeSettings",
    "TreeSpec",
    "Trees",
    "WeightedRows",
    "class_outputs",
    "fill_gaps",
    "grow",
    "train_trees",
]

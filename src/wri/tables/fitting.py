"""Names that moved to `wri.evaluation.fitting`, found here for one version."""

from wri.moved import find_moved

__getattr__ = find_moved(
    __name__, "wri.evaluation.fitting", ("FitOptions", "TableFit", "find_schema", "fit_table")
)

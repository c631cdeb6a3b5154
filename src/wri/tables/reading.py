"""Names that moved to `wri.datasets.table_rows`, found here for one version."""

from wri.moved import find_moved

__getattr__ = find_moved(__name__, "wri.datasets.table_rows", ("TableRows", "read_rows"))

"""Names that moved to `wri.datasets` and `wri.evaluation`, found here for one version."""

from wri.moved import find_moved

__getattr__ = find_moved(__name__, "wri.datasets.schema", ("TableSchema",))

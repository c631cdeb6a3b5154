"""Tables of raw columns: what each column holds, and predictions for files of any length."""

from wri.tables.schema import TableSchema

__all__ = ["TableSchema"]

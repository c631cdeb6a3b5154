"""Tables of raw columns: schemas, fits, diagnoses and predictions for files of any length."""

from wri.tables.schema import TableSchema

__all__ = ["TableSchema"]

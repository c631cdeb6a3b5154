"""The paper's laboratory: all that only `wri reproduce` needs. The library does not import it."""

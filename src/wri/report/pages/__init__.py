"""Pages of `wri fit`, `wri diagnose` and `wri site`."""

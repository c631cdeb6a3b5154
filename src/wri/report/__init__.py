"""Form of results: colours, figures, tables and pages."""

"""Results of experiments: their cells, the HTML page and the Markdown pages."""

"""Exchange with other tools, and wri inside their loops."""

"""Integrations with other tools."""

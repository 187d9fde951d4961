"""Runs: launched, imported, edited, listed, compared and shared."""

"""Scaling studies in the store."""

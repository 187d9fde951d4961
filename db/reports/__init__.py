"""Observed state: what workers report."""

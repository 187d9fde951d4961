"""Sweeps: many runs of one spec with different parameters, and which of them is best."""

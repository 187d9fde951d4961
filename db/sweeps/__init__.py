"""Sweeps and their trials in the store."""

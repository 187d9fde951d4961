"""Tracebacks in what processes wrote."""

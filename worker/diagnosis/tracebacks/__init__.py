"""Tracebacks in the output of processes."""

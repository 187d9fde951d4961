"""Preflight sessions and their results, and the gate that attempts on several nodes pass."""

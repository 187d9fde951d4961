"""Sweeps: from a request to runs, and from the runs to the best trial."""

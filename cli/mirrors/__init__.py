"""Copies of runs in a team's own tracking server."""

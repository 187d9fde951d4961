"""Logs of a run: found, merged, searched, followed."""

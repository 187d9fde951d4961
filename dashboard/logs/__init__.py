"""Logs of a run: finding, merging, searching and following them."""

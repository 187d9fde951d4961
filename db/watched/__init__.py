"""Runs that others started, and the processes that watch them."""

"""Requests that wait until something comes of a run."""

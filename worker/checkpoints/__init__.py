"""Checkpoints: found, copied, uploaded."""

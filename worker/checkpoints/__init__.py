"""Checkpoints: found, copied, uploaded, converted."""

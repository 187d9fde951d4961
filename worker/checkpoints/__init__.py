"""Checkpoints: found, copied, uploaded, rewritten."""

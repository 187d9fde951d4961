"""Prepares an attempt's directory: interpreter, code, and the checkpoint to resume from."""

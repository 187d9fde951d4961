"""Reads checkpoints of any framework tensor by tensor, in the Python that trains: standard library, torch, safetensors.

Started as `PYTHON -P -m rankzero_tensors COMMAND …` with this package's folder on PYTHONPATH.
"""

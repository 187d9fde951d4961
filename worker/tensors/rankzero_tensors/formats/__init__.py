"""The formats of checkpoints: each module has `recognize(path)` and `open(path)`."""

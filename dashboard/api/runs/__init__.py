"""Routes of runs: their figures, logs, checkpoints."""

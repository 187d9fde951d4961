"""Programs that read checkpoints in the Python that trains."""

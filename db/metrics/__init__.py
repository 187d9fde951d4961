"""Points: packed, downsampled, read as curves."""

"""Code as it was when a run was launched: chosen, packed, named by its SHA-256, and kept with the run."""

"""The `rankzero` command."""

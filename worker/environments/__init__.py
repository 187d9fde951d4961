"""The environments that are built on this node from the lock files of runs."""

"""Routes of searches in the logs of many runs."""

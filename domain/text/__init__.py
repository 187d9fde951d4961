"""Numbers, sizes, durations and lists in words."""

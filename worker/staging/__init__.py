"""Data that is brought to a node once, before the ranks of a run start."""

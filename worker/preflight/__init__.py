"""Checks whether this node can train together with others."""

"""The Nodes page."""

"""Nodes as the dashboard sees them."""

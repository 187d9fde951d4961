"""Nodes: joined, registered, heard of, drained and removed."""

"""Scaling studies: how much faster one spec trains on more devices, and what limits it."""

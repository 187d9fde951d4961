"""Runs that others started: how their processes find each other, and what they tell the server."""

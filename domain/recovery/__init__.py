"""Decide what follows a failure: another attempt, or none."""

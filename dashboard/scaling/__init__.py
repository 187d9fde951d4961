"""Scaling studies: from a request to runs, and from runs to points and a verdict."""

"""Reads for pages, the API and workers."""

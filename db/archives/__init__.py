"""Runs as documents: read completely from one store, and written into another."""

"""Runs as documents: read whole from the store, and written into another one."""

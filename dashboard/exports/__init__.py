"""Runs for other programs: their points as CSV, Parquet and JSON, and reports as HTML."""

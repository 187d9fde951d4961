"""Series of runs beside those of other runs."""

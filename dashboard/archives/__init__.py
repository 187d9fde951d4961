"""Archives of runs: written with a digest of each file, and read with nothing in them trusted."""

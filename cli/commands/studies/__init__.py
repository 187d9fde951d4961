"""Commands that submit many runs of one spec: scaling studies and sweeps."""

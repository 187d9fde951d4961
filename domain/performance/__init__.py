"""How fast a run is, and what its time is spent on."""

"""The cluster: registration, preflights, and what the Nodes page shows."""

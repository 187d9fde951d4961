"""How fast runs are while they train: what is noticed without being asked."""

"""Memory of ranks and nodes: growth with every step, and devices that ran out of it."""

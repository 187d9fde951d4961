"""What reconciles the attempts of one process with their desired state, and the loops that work on them."""

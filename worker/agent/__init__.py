"""The worker's program and its daemon, which reconciles a node with its desired state."""

"""Whether hardware can be trusted: what is remembered of devices and nodes, and when they are left out."""

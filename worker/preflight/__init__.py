"""Whether this node can train together with others."""

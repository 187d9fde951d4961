"""The installation that `rankzero nodes add` made on this node: its worker, and what starts it again."""

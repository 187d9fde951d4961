"""Routes of nodes: the cluster, joining, preflights."""

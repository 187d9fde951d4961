"""Tasks, one node's share of an attempt each: what a node should run, and what it reports."""

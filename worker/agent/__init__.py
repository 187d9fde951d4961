"""The daemon of a node: its program, and what it reconciles."""

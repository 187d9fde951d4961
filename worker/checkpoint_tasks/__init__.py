"""Work on stored checkpoints that people ask this node for: merged, shown, compared."""

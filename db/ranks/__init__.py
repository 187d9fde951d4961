"""Single ranks: their performance, stacks, collectives and profiles."""

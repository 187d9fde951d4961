"""Whether nodes can train together, judged from what they report."""

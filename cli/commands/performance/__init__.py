"""Commands about where a run spends its time, and what it waits for."""

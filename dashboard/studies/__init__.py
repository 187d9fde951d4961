"""Studies: from a request to runs, and from runs to what they show."""

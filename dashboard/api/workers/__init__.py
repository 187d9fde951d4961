"""Routes for workers: what they ask for, and all that they send."""

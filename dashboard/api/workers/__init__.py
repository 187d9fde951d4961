"""Routes for workers: their requests, and everything they send."""

"""Live updates: who looks at which run, and what is pushed to them."""

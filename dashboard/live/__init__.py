"""Live updates: viewers of runs, and the messages pushed to them."""

"""Programs that ask a dashboard: how they find it, what its answers mean, and how they download from it."""

"""The scheduler without a store: resource requests, free devices, forecasts, and why a run waits."""

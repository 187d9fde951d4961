"""The Sweeps page: which values train best."""

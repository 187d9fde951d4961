"""The Scaling page: studies of how much more devices bring."""

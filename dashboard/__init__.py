"""The web dashboard: what people and workers connect to."""

"""The service for runs that others started."""

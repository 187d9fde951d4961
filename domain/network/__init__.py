"""Addresses and certificates: which machine an IP address may be, and how clients know a dashboard's own. Pure."""

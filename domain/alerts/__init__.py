"""Alerts: which rules exist, when one of them holds, and the message about it."""

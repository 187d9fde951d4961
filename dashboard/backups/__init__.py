"""Backups of a whole server: taken while it works, verified, and restored onto an empty machine."""

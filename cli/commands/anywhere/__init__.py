"""Commands for runs that others start, for scripts that wait, and for coding agents."""

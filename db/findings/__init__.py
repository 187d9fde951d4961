"""Findings: what is wrong with attempts, as nodes report it and as the store itself sees it."""

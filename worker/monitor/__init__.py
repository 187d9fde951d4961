"""Hangs, silent mistakes and losses of attempts that train."""

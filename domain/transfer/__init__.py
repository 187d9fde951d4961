"""Runs that come from elsewhere, or leave."""

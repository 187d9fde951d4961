"""Profiles of single ranks: what is requested, what a trace shows, and what follows from it. Pure."""

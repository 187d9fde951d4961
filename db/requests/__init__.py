"""Desired state: what people ask for."""

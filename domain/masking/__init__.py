"""Secrets kept out of what people and logs are shown. Pure."""

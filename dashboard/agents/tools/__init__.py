"""The eleven tools, by what they are about."""

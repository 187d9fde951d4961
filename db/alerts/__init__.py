"""Alert rules as people set them, and the events that they are sent about."""

"""Complete a spec, warn about it, and preview it."""

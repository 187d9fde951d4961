"""Numbers, prefixes and patterns of the lines that a script prints."""

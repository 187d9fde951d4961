"""A spec made whole, warned of, previewed."""

"""Commands that take runs from elsewhere, or hand them out."""

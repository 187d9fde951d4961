"""The Log search page: which runs printed a text."""

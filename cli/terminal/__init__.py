"""Text at the terminal."""

"""What differs between two runs."""

"""What follows a failure: another attempt, or none."""

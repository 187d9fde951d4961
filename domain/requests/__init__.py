"""The numbers that requests may hold, and the error with which one is refused. Pure."""

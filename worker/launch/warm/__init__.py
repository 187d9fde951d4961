"""When a run is forked from a process that has torch imported, and when it starts plainly instead."""

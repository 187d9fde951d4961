"""The memory of devices and nodes, their quarantines, and the tests that end these."""

"""The environments and the data that nodes bring for a run before it starts."""

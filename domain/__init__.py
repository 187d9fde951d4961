"""Pure logic without disk, clock or network: the spec, the messages, scheduling and recovery decisions."""

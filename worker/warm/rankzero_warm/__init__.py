"""Fork torchrun and its ranks from a process that has torch imported. Imports the standard library only."""

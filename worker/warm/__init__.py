"""A process that has torch imported, from which torchrun and its ranks are forked."""

"""Checkpoints: on their way to the server, listed, sent again and discarded."""

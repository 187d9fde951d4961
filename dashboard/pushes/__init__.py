"""Pushes of checkpoints to a hub or bucket: asked for by people, and what their node is given for them."""

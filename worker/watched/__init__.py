"""Watch a command that somebody else started: the front in its terminal, and the companion that sends."""

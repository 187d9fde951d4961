"""Training loops that ship, each runnable by hand with torchrun; they import nothing of ours."""

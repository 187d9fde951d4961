"""TensorBoard for runs: its processes, their links to event files, and the page around it."""

"""What is true of checkpoint files without reading a disk: their names, and pointers in their place."""

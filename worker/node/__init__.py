"""This machine: hardware, processes, files, clock."""

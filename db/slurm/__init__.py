"""Jobs of Slurm clusters."""

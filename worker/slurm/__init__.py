"""Devices that a Slurm cluster gives out: the gateway on its login node, and the workers within its jobs."""

"""The gateway: submits runs to a Slurm cluster from its login node."""

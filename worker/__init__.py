"""The node daemon: starts what is wished, reports what happened, survives everything else."""

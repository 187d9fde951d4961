"""The node daemon: carries out the desired state, reports the observed one, survives everything else."""

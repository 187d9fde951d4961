"""Studies, sweeps and scaling studies, with their trials and the figures of those."""

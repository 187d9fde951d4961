"""`rankzero up`: the dashboard and a worker on this machine, started, watched and ended."""

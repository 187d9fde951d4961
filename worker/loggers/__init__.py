"""What loggers other than event files write on the disk: W&B's and MLflow's stores, also as point sources."""

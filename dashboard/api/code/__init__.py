"""Routes of scripts and snapshots."""

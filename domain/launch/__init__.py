"""From a spec to what a node starts: commands, environments, job scripts, systemd units."""

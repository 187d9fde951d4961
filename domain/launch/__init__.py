"""From a spec to what a node starts: commands, environments, systemd units."""

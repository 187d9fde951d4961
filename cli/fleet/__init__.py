"""Make machines nodes over the person's own `ssh`: install, upgrade, examine and remove the worker there."""

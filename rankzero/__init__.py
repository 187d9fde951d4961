"""Import `rankzero` in a script or notebook: `connect()` to a dashboard, `watch()` this process, `log()` a figure."""

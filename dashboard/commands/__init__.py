"""The subcommands of `rankzero`; each translates its options and calls one thing."""

"""Commands about runs: launch, look at, compare, describe and take them elsewhere."""

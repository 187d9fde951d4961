"""Why an attempt ended, in one sentence."""

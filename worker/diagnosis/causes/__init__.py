"""Known causes of failures, with what to try next."""

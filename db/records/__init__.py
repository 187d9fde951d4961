"""Look-ups, exceptions and the history that every other part of the store uses."""

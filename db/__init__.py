"""The store: the one place where wishes of people and facts of workers meet."""

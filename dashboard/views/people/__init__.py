"""Pages about people: accounts, roles, secrets, and what everybody did."""

"""Authentication and authorisation: who somebody is, how they sign in, and what a request may do."""

"""Authentication and authorisation: tokens, sessions, security headers."""

"""Who may: tokens, sessions, headers."""

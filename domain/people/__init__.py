"""Who may do what: roles of people, scopes of tokens, and the rights that follow from both."""

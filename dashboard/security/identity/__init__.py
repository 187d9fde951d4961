"""Who somebody is: accounts, sessions, access tokens, and the rights that they give."""

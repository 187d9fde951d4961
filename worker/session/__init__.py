"""The session with the server: requests, answers, failures."""

"""The session with the server: requests, answers and failures."""

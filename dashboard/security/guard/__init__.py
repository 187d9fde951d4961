"""Guarding requests: what reaches a page, a route or a WebSocket, and what its answer may do in a browser."""

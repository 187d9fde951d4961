"""The addresses of the pages, and their titles."""

from __future__ import annotations

TITLES = {
    "/": "Runs",
    "/studies": "Studies",
    "/launch": "Launch",
    "/nodes": "Nodes",
    "/alerts": "Alerts",
    "/scaling": "Scaling",
    "/sweeps": "Sweeps",
    "/run": "Run",
    "/project": "Project",
    "/compare": "Compare",
    "/logs": "Search logs",
    "/people": "People",
    "/audit": "Audit",
    "/account": "Account",
}
IN_BAR = ("/", "/studies", "/launch", "/nodes", "/alerts")
"""The pages with a link in the bar; they begin with its word, the others have a heading of their own."""

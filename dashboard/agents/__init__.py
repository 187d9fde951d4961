"""The tools of coding agents, at /mcp."""

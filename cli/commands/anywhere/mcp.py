"""`rankzero mcp`: the dashboard's tools for an agent that starts a program and speaks to it over stdin and stdout."""

from __future__ import annotations

import asyncio

from cli.server.options import Data, server_at


def mcp(data: Data = None) -> None:
    """Serve the dashboard's tools to a coding agent, over stdin and stdout (MCP).

    The token is that of RANKZERO_TOKEN or `rankzero login`; see docs/AGENTS.md. Ends with its stdin.

    Raises CommandFailed."""
    from cli.server.mcp_forwarding import forward

    asyncio.run(forward(server_at(data)))

"""The command line of npm's MCP inspector, another client than the SDK's, walks the eleven tools."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.agents.talking import token_of
from tests.dashboard.running import Running, running

pytestmark = pytest.mark.long
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
NPX = str(Path(sys.executable).with_name("npx"))
LIMIT_S = 300.0
SPEC = '{"target": "image_classifier", "gpus_per_node": 1, "name": "asked"}'


def inspect(dashboard: Running, token: str, cache: Path, method: str, *arguments: str) -> Any:
    """What the inspector prints for one request."""
    server = ["--cli", f"{dashboard.url}/mcp", "--transport", "http", "--header", f"Authorization: Bearer {token}"]
    environment = {
        **os.environ,
        "PATH": f"{Path(NPX).parent}:{os.environ['PATH']}",
        "npm_config_ignore_scripts": "true",
    }
    done = subprocess.run(
        [NPX, "--yes", "--cache", str(cache), INSPECTOR, *server, "--method", method, *arguments],
        capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_the_inspector_walks_the_eleven_tools(tmp_path):
    with running(tmp_path / "data", on_port=True) as dashboard:
        dashboard.node()
        run_id, other = dashboard.launch(name="first"), dashboard.launch(name="other")
        token = token_of(dashboard, "agent", "act", budget_s=36000.0)

        def call(tool: str, **arguments: str) -> Any:
            pairs = [word for name, value in arguments.items() for word in ("--tool-arg", f"{name}={value}")]
            said = inspect(dashboard, token, tmp_path / "npm", "tools/call", "--tool-name", tool, *pairs)
            assert not said.get("isError"), said
            return json.loads(said["content"][0]["text"])

        listed = [tool["name"] for tool in inspect(dashboard, token, tmp_path / "npm", "tools/list")["tools"]]
        assert len(listed) == 11
        assert {run["id"] for run in call("runs")["runs"]} == {run_id, other}
        assert call("run", run=run_id)["run"]["id"] == run_id
        assert call("curve", run=run_id)["series"] == []
        assert call("logs", run=run_id, pattern="x")["lines"] == []
        assert len(call("compare", runs=json.dumps([run_id, other]))["runs_compared"]) == 2
        assert call("ranks", run=run_id)["ranks"] == []
        assert call("cluster")["devices"] == 2
        assert call("wait", run=run_id, timeout_s="0")["reached"] == "timeout"
        assert call("propose", spec=SPEC)["link"]
        asked = call("launch", spec=SPEC, key="launch-1")["run"]["id"]
        assert call("launch", spec=SPEC, key="launch-1")["run"]["id"] == asked
        assert call("act", run=asked, action="stop", key="stop-1")["run"]["state"] == "stopped"

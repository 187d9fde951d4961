"""`rankzero mcp` passes an agent's lines on to the dashboard, in both revisions, and its answers back."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from cli import main
from tests.dashboard.running import Running, running

RANKZERO = str(Path(sys.executable).with_name("rankzero"))
TOOLS = ["runs", "run", "curve", "logs", "compare", "ranks", "cluster", "wait", "propose", "launch", "act"]
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A dashboard on a port: the client of `rankzero mcp` has an event loop of its own."""
    with running(tmp_path_factory.mktemp("mcp") / "data", on_port=True) as dashboard:
        dashboard.node()
        yield dashboard


def said(monkeypatch: pytest.MonkeyPatch, capfd: Any, *lines: object) -> list[dict[str, Any]]:
    """What the command prints when these lines come over stdin, by their ids."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("\n".join([*texts, ""]).encode())))
    capfd.readouterr()
    assert main.run(["mcp"]) == 0
    printed = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    return sorted(printed, key=lambda message: str(message.get("id")))


def request(number: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def test_lines_of_the_older_revisions_are_answered_and_it_ends_with_stdin(listening, monkeypatch, capfd):
    monkeypatch.setenv("RANKZERO_URL", listening.url)
    monkeypatch.setenv("RANKZERO_TOKEN", listening.token)
    answers = said(
        monkeypatch, capfd,
        request(1, "initialize", **HELLO),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request(2, "tools/call", name="cluster", arguments={}),
        request(3, "tools/call", name="nothing", arguments={}),
        "no json", "[]",
    )  # fmt: skip
    by_id = {answer["id"]: answer for answer in answers}
    assert by_id[1]["result"]["serverInfo"]["name"] == "rankzero"
    assert json.loads(by_id[2]["result"]["content"][0]["text"])["devices"] == 2
    assert by_id[3]["result"]["isError"]
    assert sorted(answer["error"]["code"] for answer in answers if answer["id"] is None) == [-32700, -32600]


@pytest.mark.parametrize(
    ("url", "token", "sentence"),
    [(None, "rz_wrong", "does not accept this token"), ("http://127.0.0.1:9", "x", "No dashboard answers")],
)
def test_what_goes_wrong_on_the_way_is_an_error_of_the_protocol(listening, monkeypatch, capfd, url, token, sentence):
    monkeypatch.setenv("RANKZERO_URL", url or listening.url)
    monkeypatch.setenv("RANKZERO_TOKEN", token)
    (answer,) = said(monkeypatch, capfd, request(7, "tools/list"))
    assert answer["id"] == 7
    assert sentence in answer["error"]["message"]


@pytest.mark.real
@pytest.mark.parametrize("mode", ["2026-07-28", "legacy", "auto"])
def test_the_sdks_client_starts_it_and_calls_tools(listening, mode):
    environment = {**os.environ, "RANKZERO_URL": listening.url, "RANKZERO_TOKEN": listening.token}

    async def talk() -> tuple[list[str], Any]:
        server = StdioServerParameters(command=RANKZERO, args=["mcp"], env=environment)
        async with Client(server, mode=mode) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            return tools, await client.call_tool("cluster", {})

    tools, answer = anyio.run(talk)
    assert tools == TOOLS
    assert not answer.is_error

"""`rankzero audit` against a real dashboard."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.documents import document
from tests.dashboard.running import Running

pytestmark = pytest.mark.usefixtures("node")


@pytest.fixture
def audit(dashboard: Running, rankzero: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    return lambda *arguments: rankzero("audit", *arguments)


def test_what_was_done_is_listed_newest_first(dashboard: Running, audit: Any) -> None:
    run_id = dashboard.launch()
    dashboard.http.post(f"/api/runs/{run_id}/stop")
    entries = document(audit("--json"))
    assert [(entry["by"], entry["action"], entry["object"]) for entry in entries] == [
        ("owner", "stopped", f"run {run_id}"),
        ("owner", "launched", f"run {run_id}"),
    ]
    code, table, _ = audit("--by", "owner", "--since", "1h", "--action", "stopped")
    assert code == 0 and run_id in table and "launched" not in table


def test_lines_are_json_documents_and_their_export_is_written_down(dashboard: Running, audit: Any) -> None:
    run_id = dashboard.launch()
    code, lines, _ = audit("--jsonl")
    assert code == 0
    assert [json.loads(line)["object"] for line in lines.splitlines()] == [f"run {run_id}"]
    assert document(audit("--json"))[0]["object"] == "audit log"


def test_nothing_found_is_a_sentence(audit: Any) -> None:
    assert audit()[1] == "The audit log is empty.\n"
    assert audit("--by", "nobody")[1] == "No entry of the audit log matches.\n"
    assert document(audit("--since", "2026-01-01", "--json")) == []


def test_table_says_what_else_is_known_and_an_unknown_action_which_there_are(dashboard: Running, audit: Any) -> None:
    invited = {"email": "dan@lab.example", "role": "member"}
    invitation = dashboard.http.post("/api/invitations", json=invited).json()["id"]
    dashboard.http.delete(f"/api/invitations/{invitation}")
    revoked, made = audit()[1].splitlines()[1:]
    assert f"invitation {invitation} dan@lab.example, as member" in made
    assert f"invitation {invitation} dan@lab.example" in revoked
    code, _, error = audit("--action", "bogus")
    assert code == 2 and error.startswith("action must be one of 'signed-in', ") and "got 'bogus'" in error


@pytest.mark.parametrize("arguments", [("--since", "yesterday"), ("--since", "xd"), ("--json", "--jsonl")])
def test_wrong_usage_ends_with_2(audit: Any, arguments: tuple[str, ...]) -> None:
    code, _, error = audit(*arguments)
    assert code == 2 and error

"""Who did what stands on lists, in answers and in exports, where it was not all the one owner's doing."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from domain.people.roles import Role
from tests.dashboard.alerts.conftest import patience
from tests.dashboard.persons import browser_of, person
from tests.dashboard.running import FakeNode, Running

__all__ = ["patience"]

TO = "https://8.8.8.8/hook"


@pytest.fixture
def command(dashboard: Running, rankzero: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)

    def printed(*arguments: str) -> str:
        code, out, errors = rankzero(*arguments)
        assert code == 0, errors
        return str(out)

    return printed


def ana_did_it_all(dashboard: Running) -> tuple[str, int, int]:
    """One of each, all hers: a run, an alert, a link, a join token, a drain, a test and a preflight."""
    ana = browser_of(dashboard, person(dashboard.service, "ana", Role.ADMIN))

    def post(path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = ana.post(path, json=body or {})
        assert answer.is_success, answer.text
        return dict(answer.json())

    run_id = post("/api/runs", {"target": "image_classifier", "gpus_per_node": 1})["id"]
    post("/api/alerts", {"rule": "failed", "target": TO})
    post("/api/shared-links", {"runs": [run_id]})
    post("/api/join-tokens", {"name": "rack b2"})
    test = post("/api/nodes/n0/test")["id"]
    post("/api/nodes/n0/drain")
    return run_id, test, post("/api/preflight")["id"]


def test_lists_say_who_did_it_where_others_than_the_owner_did(
    dashboard: Running, node: FakeNode, command: Callable[..., str]
) -> None:
    _, test, check = ana_did_it_all(dashboard)
    for words in (("runs",), ("alert", "list"), ("share", "list"), ("token", "--join", "--list")):
        titles, row = command(*words).splitlines()
        assert titles.endswith("  by") and row.endswith("  ana"), words
        assert [one["by"] for one in json.loads(command(*words, "--json"))] == ["ana"], words
    assert "draining by ana" in command("nodes")
    assert dashboard.http.get(f"/api/tests/{test}").json()["by"] == "ana"
    assert dashboard.http.get(f"/api/preflight/{check}").json()["by"] == "ana"


def test_lists_of_one_person_name_nobody(dashboard: Running, node: FakeNode, command: Callable[..., str]) -> None:
    dashboard.launch()
    dashboard.http.post("/api/nodes/n0/drain")
    command("alert", "add", "failed", "--to", TO)
    for words in (("runs",), ("alert", "list"), ("nodes",)):
        out = command(*words)
        assert "  by" not in out and "owner" not in out, words


def test_exports_of_points_name_the_runs_person_where_several_share(dashboard: Running, node: FakeNode) -> None:
    alone = dashboard.launch()
    node.log_points(node.task(), 0, train__loss=[(1, 2.0, 3.0)])

    def exported(kind: str) -> str:
        return str(dashboard.http.get("/api/export", params={"runs": alone, "format": kind}).text)

    (head, _) = csv.reader(io.StringIO(exported("csv")))
    assert head[-1] == "wall_time" and json.loads(exported("json"))[0]["by"] == "owner"
    person(dashboard.service, "ana", Role.ADMIN)
    head, row = csv.reader(io.StringIO(exported("csv")))
    assert (head[-2:], row[-1]) == (["wall_time", "by"], "owner")


def test_every_line_of_a_history_is_signed(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    node.report(node.task(), "running")
    node.report(node.task(), "failed", exit_code=1)
    lines = dashboard.http.get(f"/api/runs/{run_id}/history").json()
    signed = {line["text"].split()[0]: (line["by"], line["via"]) for line in lines}
    assert signed["launched:"] == ("owner", None) and signed["placed"] == (None, "scheduler")
    assert (None, "worker n0") in signed.values(), lines
    assert all(line["by"] or line["via"] for line in lines), lines

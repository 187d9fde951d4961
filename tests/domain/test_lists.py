"""A list has the same words on a page, which has the views, and in a terminal, which has the JSON made of them."""

from __future__ import annotations

import json
import math
from datetime import UTC
from typing import Any

import pytest

from dashboard.cluster.installations import HostStep
from dashboard.json_responses import text_of
from domain.clients.answers import Document
from domain.lists import node_lists, people_lists, run_lists
from domain.people.accounts import UserView
from domain.people.audit import AuditAction, AuditEntryView, columns_of
from domain.people.roles import Role, Scope
from domain.people.tokens import AccessTokenView
from domain.scaling.points import Point
from domain.text.columns import Column, Columns
from domain.text.formats import clock_time
from domain.views import CheckpointView, DeviceView, HistoryView, JoinTokenView, NodeView, Quarantine, RankView

NOW = 100_000.0
SAVED: dict[str, Any] = {
    "id": 1, "name": "a.pt", "attempt": 1, "step": 1234, "size_bytes": 100, "received_bytes": 40, "sha256": "0f" * 32,
    "complete": False, "created_at": NOW - 60, "loss": math.nan, "loss_name": None, "latest": False, "best": False,
    "prefix": None,
}  # fmt: skip
DEVICES = [
    DeviceView("GPU-0", "cuda", "H200", None, run_id="abcdefghij", attempt=1, foreign=False),
    DeviceView("GPU-1", "cuda", "H200", None, None, None, foreign=False, quarantine=Quarantine(1.0, "Xid 79")),
]
INTERPRETER = {"torch": "2.13.0", "problem": "It has no NCCL."}
NODE = NodeView(
    "n1", "gpu-1", "alive", True, "gpu-1", "10.0.0.1", 2, 0, DEVICES, {}, {"interpreter": INTERPRETER}, None, 1.0, 9.0,
    upgrade="Upgrade its worker.", drained_by="ana",
)  # fmt: skip
LISTS: dict[str, tuple[Columns[Any], Any]] = {
    "ranks": (run_lists.RANKS, RankView(3, "gpu-1", 12_345, 0.25, None, 1 << 30, NOW)),
    "checkpoints": (run_lists.checkpoints(clock_time), CheckpointView(**SAVED)),
    "history": (run_lists.history(UTC, with_people=True), HistoryView(NOW, None, "launched", "ana", "token ci")),
    "scaling points": (
        run_lists.scaling_points(True), Point(4, 1, "fsdp", "abcdefghij", 1234.0, 3.5, 0.875, None, "comm")
    ),
    "people": (people_lists.people(NOW), UserView("ana", None, None, {"b": Role.ADMIN}, None, 1.0, True, False)),
    "access tokens": (
        people_lists.access_tokens(NOW), AccessTokenView("ci", "ana", Scope.ACT, None, 1.0, None, NOW - 60)
    ),
    "join tokens": (people_lists.join_tokens(NOW), JoinTokenView("ab", "rack", "rz-…", 1.0, NOW + 60, None, None, 2)),
    "nodes": (node_lists.nodes(NOW), NODE),
    "hosts": (node_lists.HOSTS, HostStep(host="me@gpu-1", state="working", step="looking", seconds=2.4)),
    "audit": (
        columns_of(NOW),
        AuditEntryView(id=1, at=NOW - 60, by=None, via=None, action=AuditAction.ERASED, object="run abcdefghij",
                       project="p", address=None, more={"name": "small GPT"}),
    ),
}  # fmt: skip


def words(columns: Columns[Any], entry: Any) -> dict[str, str]:
    return {column.title: str(column.cell(entry)) for column in columns}


@pytest.mark.parametrize("which", LISTS)
def test_a_view_and_the_json_made_of_it_have_the_same_words(which: str) -> None:
    columns, view = LISTS[which]
    assert words(columns, json.loads(text_of(view), object_hook=Document)) == words(columns, view)


def test_words_of_each_list_are_those_that_people_read() -> None:
    shown = {which: words(*described) for which, described in LISTS.items()}
    assert shown["checkpoints"] | {"SHA-256": ""} == {
        "name": "a.pt", "step": "1\u202f234", "loss": "NaN", "size": "100 B", "holds": "not read",
        "state": "40% received", "attempt": "1", "saved": "1970-01-02 03:45:40", "SHA-256": "",
    }  # fmt: skip
    assert shown["history"] == {
        "when (UTC)": "1970-01-02 03:46:40", "attempt": "", "what": "launched", "who": "ana (token ci)",
    }  # fmt: skip
    assert shown["scaling points"] == {
        "global batch": "–", "devices": "4", "nodes": "1", "strategy": "FSDP", "run": "abcdefghij", "samples/s": "1234",
        "speed-up": "3.50x", "efficiency": "88%", "spread": "", "limit": "comm",
    }  # fmt: skip
    assert (shown["people"]["role"], shown["people"]["in projects"]) == ("none", "admin of b")
    assert shown["access tokens"]["state"] == "until revoked"
    assert shown["join tokens"]["state"].startswith("valid for 1 min more, until ")
    assert shown["nodes"]["state"] == "online, draining by ana, to upgrade"
    assert (shown["nodes"]["devices"], shown["nodes"]["versions"]) == ("2 × H200", "torch 2.13.0")
    assert (shown["hosts"]["state"], shown["hosts"]["seconds"]) == ("looking", "2")
    assert (shown["audit"]["person"], shown["audit"]["what"]) == ("dashboard", "run abcdefghij small GPT")


@pytest.mark.parametrize(
    ("about", "state"),
    [
        ({"complete": True, "latest": True, "best": True}, "complete, latest, best"),
        ({"complete": True, "is_part": True, "prefix": "module."}, "complete, only a part, DDP prefix"),
        ({"trouble": "The store is full."}, "40% received, waiting"),
        ({"is_asked_for_again": True}, "asked for again, 40% received"),
        ({"size_bytes": 0, "received_bytes": 0}, "0% received"),
    ],
)
def test_the_state_of_a_checkpoint_says_what_has_arrived_and_what_it_is(about: dict[str, Any], state: str) -> None:
    assert words(run_lists.checkpoints(clock_time), CheckpointView(**SAVED | about))["state"] == state


def test_a_field_that_an_older_server_lacks_is_empty() -> None:
    column = Column[Any]("trouble")
    assert column.cell(Document(name="a.pt")) == ""
    assert words(run_lists.checkpoints(clock_time), Document({**SAVED, "loss": "NaN"}))["loss"] == "NaN"


def test_problems_of_a_node_are_the_same_sentences_everywhere() -> None:
    problems = ["GPU 1 is in quarantine: Xid 79", "Upgrade its worker.", "It has no NCCL."]
    assert node_lists.notices(NODE) == problems
    assert node_lists.notices(json.loads(text_of(NODE), object_hook=Document)) == problems

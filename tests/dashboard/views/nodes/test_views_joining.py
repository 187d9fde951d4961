"""Adding a node from the Nodes page: what is said of tokens, and what a session sees of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dashboard.cluster.installations import SILENT_AFTER_S, InstallationReport
from dashboard.views.nodes import joining
from db import acting
from domain.lists.people_lists import lasting, state_of
from domain.people.rights import Rights, rights_of_owner
from domain.people.roles import Role
from domain.text.formats import with_code
from domain.views import JoinTokenView
from tests.dashboard.pages import Pages, button, served, texts, visited_by
from tests.dashboard.persons import person

TOKEN = JoinTokenView("ab12", "rack b2", "rzjoin-ab12-…", 0.0, 86_400.0, None, None, 0)


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as it:
        yield it


def test_a_cluster_without_nodes_opens_with_how_to_get_one(pages):
    page = pages.open("nodes")
    assert not page.exception and page.header[0].value == "No node has joined yet"
    button(page, "Make a join token").click().run()
    assert not page.exception
    command = page.code[1].value
    assert command.startswith("RANKZERO_TOKEN=rzjoin-") and "rankzero worker --server http://" in command
    assert "systemctl enable --now rankzero-worker" in page.code[2].value
    assert "Waiting for it to join" in texts(page)
    secret = command.removeprefix("RANKZERO_TOKEN=").split()[0]
    assert secret not in texts(pages.open("nodes"))  # another session never sees it


def test_how_long_a_token_is_good_can_be_chosen_and_it_can_be_revoked(pages):
    page = pages.open("nodes")
    page.selectbox(key="join_for").set_value("1 hour").run()
    button(page, "Make a join token").click().run()
    (token,) = pages.service.join_tokens.every()
    assert token.expires_at - token.created_at == 3600
    page.button(key=f"revoke_{token.id}").click().run()
    assert not page.exception and "There is no valid token." in texts(page)
    page.toggle(key="join_ended").set_value(True).run()
    assert any("revoked" in badge.value for badge in page.markdown)


def test_what_people_made_and_asked_for_is_signed_where_several_share(pages):
    with acting.acting(rights_of_owner()):
        pages.service.join_tokens.make(None, "rack b2")
    assert "made by" not in texts(pages.open("nodes"))
    person(pages.service, "ana", Role.ADMIN)
    assert "made by owner" in texts(pages.open("nodes"))


def test_a_name_that_is_refused_says_why(pages):
    page = pages.open("nodes")
    page.text_input(key="join_name").set_value("x" * 201).run()
    button(page, "Make a join token").click().run()
    assert not page.exception and "at most 200 characters" in page.error[0].value
    assert pages.service.join_tokens.every() == []


def test_for_how_long_a_token_is_good_is_said():
    assert (state_of(TOKEN, 1), lasting(TOKEN, 1)) == ("valid", "for 24 h more, until 1970-01-02 00:00 UTC")
    assert (state_of(TOKEN, 90_000), lasting(TOKEN, 90_000)) == ("expired", "60 min ago")
    revoked = replace(TOKEN, revoked_at=50.0)
    assert (state_of(revoked, 100), lasting(revoked, 100)) == ("revoked", "50 s ago")


def test_commands_within_a_sentence_are_code_and_nothing_else_is_markup():
    assert with_code("Start it with `--host 0.0.0.0` (or *not*).") == (
        "Start it with `--host 0.0.0.0` \\(or \\*not\\*\\)\\."
    )
    assert with_code("it printed `*odd*\n\n**bold**") == "it printed \\`\\*odd\\* \\*\\*bold\\*\\*"


def test_hosts_that_a_command_works_on_are_shown_with_their_step_and_trouble(pages):
    hosts = [
        {"host": "gpu-1", "node": "gpu-1", "state": "joined", "seconds": 12.4, "message": "runs *as* a unit"},
        {"host": "gpu-2", "state": "working", "step": "bringing wheels", "seconds": 3},
        {"host": "me@gpu-3:22", "state": "failed", "message": "uv: https://me:hunter2@index.example/ is away"},
    ]
    report = InstallationReport.model_validate({"action": "add", "hosts": hosts})
    pages.service.installations.record("0" * 16, report)
    page = pages.open("nodes")
    (rows,) = [part.value for part in page.markdown if "| Host |" in part.value]
    assert ":green-badge[joined]" in rows and "| 12 |" in rows and "as\\* a unit" in rows
    assert ":blue-badge[bringing wheels]" in rows and ":red-badge[failed]" in rows
    assert "hunter2" not in rows
    assert "**Adding 3 hosts**: 1 added, 1 failed, 1 to go" in texts(page)
    (told,) = pages.service.installations.all()
    assert [told.is_silent(told.reported_at + s) for s in (SILENT_AFTER_S - 1, SILENT_AFTER_S + 1)] == [False, True]


def test_nobody_is_warned_of_what_only_admins_can_mend(pages, monkeypatch):
    monkeypatch.setattr(joining, "address_for_others", lambda *_: ("http://x", "Nobody can reach it"))
    assert "Nobody can reach it" in texts(pages.open("nodes"))
    with visited_by(pages, Rights("vic", everywhere=Role.VIEWER)):
        shown = texts(pages.open("nodes"))
    assert "only admins can" in shown and "Nobody can reach it" not in shown

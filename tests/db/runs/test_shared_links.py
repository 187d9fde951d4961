"""Links to runs show them for their time, can be revoked, and no store knows their secrets."""

from __future__ import annotations

import base64

import pytest
from sqlalchemy import text

from db.exceptions import NoSuchLink
from db.runs import run_requests, shared_links
from db.runs.shared_links import DAY_S, LinkEnded
from domain.requests.errors import InvalidRequest
from domain.spec import RunSpec


@pytest.fixture
def run_id(store):
    return run_requests.submit(store, RunSpec(target="language_model", wait_for_nodes=True), 1.0)


def test_a_link_shows_its_runs_until_it_expires(store, run_id):
    link, token = shared_links.make(store, [run_id], 7, 1000.0)
    assert (link.runs, link.expires_at, link.state) == ([run_id], 1000.0 + 7 * DAY_S, "valid")
    assert shared_links.opened(store, token, link.expires_at - 1) == link
    with pytest.raises(LinkEnded, match=r"expired on 1970-01-08 00:16:40 UTC\.$"):
        shared_links.opened(store, token, link.expires_at)


def test_a_revoked_link_says_so(store, run_id):
    link, token = shared_links.make(store, [run_id], 7, 1000.0)
    assert shared_links.revoke(store, link.id, 1060.0).state == "revoked"
    assert shared_links.revoke(store, link.id, 2000.0).revoked_at == 1060.0
    with pytest.raises(LinkEnded, match="revoked on 1970-01-01 00:17:40 UTC"):
        shared_links.opened(store, token, 1061.0)
    with pytest.raises(NoSuchLink):
        shared_links.revoke(store, "0000000000", 1.0)


def test_wrong_token_learns_nothing(store, run_id):
    link, token = shared_links.make(store, [run_id], 7, 1000.0)
    shared_links.revoke(store, link.id, 1001.0)
    other = f"{token[:-1]}{'a' if token[-1] != 'a' else 'b'}"
    for wrong in (other, token[:20], f"{token}x", f"{token}\n", "", "é", link.id, f"0000000000-{'x' * 43}"):
        with pytest.raises(NoSuchLink):
            shared_links.opened(store, wrong, 1002.0)


def test_the_store_keeps_no_secret_and_ended_links_for_a_month(store, run_id):
    _, token = shared_links.make(store, [run_id], 1, 1000.0)
    with store.read() as session:
        assert len(base64.urlsafe_b64decode(token[11:] + "=")) == 32, "256 random bits"
        assert token[11:] not in str(session.execute(text("select * from shared_links")).all())
    new, _ = shared_links.make(store, [run_id], 7, 30 * DAY_S)
    assert [link.state for link in shared_links.every(store, 30 * DAY_S)] == ["valid", "expired"]
    newest, _ = shared_links.make(store, [run_id], 7, 32 * DAY_S)
    assert [link.id for link in shared_links.every(store, 32 * DAY_S)] == [newest.id, new.id]
    with pytest.raises(NoSuchLink):
        shared_links.opened(store, token, 32 * DAY_S)


@pytest.mark.parametrize(("runs", "days"), [([], 7), (["r"] * 51, 7), (["r"], 0), (["r"], 367)])
def test_wrong_token_request_is_refused_in_a_sentence(sqlite_store, runs, days):
    with pytest.raises(InvalidRequest, match=r"\.$"):
        shared_links.make(sqlite_store, runs, days, 1.0)

"""`rankzero share` against a real dashboard: links are made, listed and revoked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.cli.documents import document
from tests.dashboard.running import Running

Share = Callable[..., tuple[int, str, str]]


def share_of(dashboard: Running, rankzero: Any, monkeypatch: pytest.MonkeyPatch) -> Share:
    """The command, against that dashboard."""
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    return partial(rankzero, "share")


@pytest.fixture
def share(shared: Running, rankzero: Any, monkeypatch: pytest.MonkeyPatch) -> Share:
    return share_of(shared, rankzero, monkeypatch)


@pytest.fixture
def run_id(shared: Running) -> str:
    return shared.launch()


def status(dashboard: Running, address: str) -> int:
    """What the address answers somebody who is not signed in."""
    return dashboard.anonymous().get(address).status_code


def test_list_without_links_says_so(dashboard: Running, rankzero: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "There is no link" in share_of(dashboard, rankzero, monkeypatch)("list")[1]


def test_link_is_valid_for_as_many_days_as_asked(shared: Running, share: Share, run_id: str) -> None:
    made = document(share(run_id, "--days", "2", "--json"))
    assert made["expires_at"] - made["created_at"] == 2 * 24 * 3600
    assert status(shared, made["url"]) == 200


def test_command_prints_the_address_and_its_end(shared: Running, share: Share, run_id: str) -> None:
    address, until = share(run_id)[1].splitlines()
    assert status(shared, address) == 200 and until.startswith("Valid until 20")


def test_list_has_the_newest_link_first(share: Share, run_id: str) -> None:
    earlier, later = (document(share(run_id, "--json"))["id"] for _ in range(2))
    assert [link["id"] for link in document(share("list", "--json"))][:2] == [later, earlier]


def test_revoked_link_opens_nothing(shared: Running, share: Share, run_id: str) -> None:
    made = document(share(run_id, "--json"))
    assert document(share("revoke", made["id"], "--json"))["state"] == "revoked"
    assert status(shared, made["url"]) == 410


def test_list_tells_valid_links_from_revoked_ones(share: Share, run_id: str) -> None:
    revoked, _ = (document(share(run_id, "--json"))["id"] for _ in range(2))
    share("revoke", revoked)
    states = [line for line in share("list")[1].splitlines() if run_id in line]
    assert ["revoked" in line for line in states] == [False, True]
    assert "valid" in states[0]


def test_revoke_needs_a_link(share: Share) -> None:
    assert share("revoke")[0] == 2


def test_unknown_link_is_not_revoked(share: Share) -> None:
    code, _, err = share("revoke", "0000000000")
    assert code == 1 and "There is no link" in err


def test_link_of_no_day_is_refused(share: Share, run_id: str) -> None:
    assert share(run_id, "--days", "0")[0] == 2

"""`rankzero share` against a real dashboard: a link is made, listed and revoked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.documents import document
from tests.dashboard.running import FakeNode, Running


def test_a_link_is_made_listed_and_revoked(
    rankzero: Any, dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    assert "There is no link" in rankzero("share", "list")[1]
    run_id = dashboard.launch()
    made = document(rankzero("share", run_id, "--days", "2", "--json"))
    assert made["expires_at"] - made["created_at"] == 2 * 24 * 3600
    assert dashboard.anonymous().get(made["url"]).status_code == 200
    address, until = rankzero("share", run_id)[1].splitlines()
    assert dashboard.anonymous().get(address).status_code == 200 and until.startswith("Valid until 20")
    assert [link["id"] for link in document(rankzero("share", "list", "--json"))][1] == made["id"]
    assert document(rankzero("share", "revoke", made["id"], "--json"))["state"] == "revoked"
    assert dashboard.anonymous().get(made["url"]).status_code == 410
    listed = rankzero("share", "list")[1]
    assert "revoked" in listed and "valid" in listed and run_id in listed
    assert rankzero("share", "revoke")[0] == 2
    code, _, err = rankzero("share", "revoke", "0000000000")
    assert code == 1 and "There is no link" in err
    assert rankzero("share", run_id, "--days", "0")[0] == 2

"""Links to the form with a proposed run: ours, for a week, without secrets."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from dashboard.planning import proposals
from dashboard.security.keys.token_files import Credentials
from domain.people.rights import Rights

CREDENTIALS = Credentials("user-secret", "join", "metrics")
AGENT = Rights("ada", via="token agent")
SPEC = {"target": "train.py", "args": ["--lr", "{lr}"], "lr": 0.1, "env": {"MODE": "x", "API_TOKEN": "s3cret"}}


def proposal_of(path: str) -> str:
    """What the address has of the proposal."""
    address = urlsplit(path)
    assert address.path == "/launch"
    return parse_qs(address.query)[proposals.PARAMETER][0]


def test_a_link_is_ours_for_a_week_and_has_no_secrets():
    text = proposal_of(proposals.path(CREDENTIALS, SPEC, "abc", AGENT, 1000.0))
    read = proposals.read(CREDENTIALS, text, 1000.0 + proposals.LIFETIME_S)
    assert read is not None
    assert (read.spec, read.like, read.by) == (SPEC | {"env": {"MODE": "x"}}, "abc", "token agent of ada")
    assert proposals.read(CREDENTIALS, text, 1001.0 + proposals.LIFETIME_S) is None
    assert proposals.read(Credentials("another", "join", "metrics"), text, 1000.0) is None
    assert proposals.read(CREDENTIALS, "A" + text[1:], 1000.0) is None
    for odd in ("", ".", "ö.ö", text + "x", "x" * 30_000):
        assert proposals.read(CREDENTIALS, odd, 1000.0) is None

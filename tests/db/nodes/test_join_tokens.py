"""Join tokens are good for their time, can be ended, and no store knows them."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from db import acting
from db.models import User
from db.nodes import join_tokens
from db.nodes.join_tokens import Admitted, TurnedAway
from db.people import accounts, removal
from domain.people.rights import Rights
from domain.people.roles import Role
from domain.requests.errors import InvalidRequest


def test_a_token_admits_until_it_expires_and_says_so_afterwards(store):
    view, secret = join_tokens.make(store, 3600, "rack 3", 1000.0)
    assert (view.expires_at, view.uses, secret.startswith(view.hint.rstrip("…"))) == (4600.0, 0, True)
    assert join_tokens.judge(store, secret.encode(), 4599.0) == Admitted(view.id)
    verdict = join_tokens.judge(store, secret.encode(), 4600.0)
    assert isinstance(verdict, TurnedAway)
    assert "expired at 1970-01-01 01:16 UTC" in verdict.message and "--expires" in verdict.message


def test_a_revoked_token_admits_nobody_and_says_so(store):
    view, secret = join_tokens.make(store, None, "", 1000.0)
    assert join_tokens.revoke(store, view.id, 1060.0).revoked_at == 1060.0
    assert join_tokens.revoke(store, view.id, 2000.0).revoked_at == 1060.0
    verdict = join_tokens.judge(store, secret.encode(), 1061.0)
    assert isinstance(verdict, TurnedAway) and "revoked at 1970-01-01 00:17 UTC" in verdict.message
    with pytest.raises(join_tokens.NoSuchToken):
        join_tokens.revoke(store, "00000000", 1.0)


def test_a_token_ends_with_the_rights_of_its_maker(store):
    with store.write() as session:
        session.add(User(name="ada", role="admin", created_at=1.0))
    with acting.acting(Rights("ada", everywhere=Role.ADMIN)):
        view, secret = join_tokens.make(store, None, "", 1000.0)
    assert join_tokens.judge(store, secret.encode(), 1001.0) == Admitted(view.id)
    accounts.set_role(store, "ada", Role.MEMBER, None)
    verdict = join_tokens.judge(store, secret.encode(), 1002.0)
    assert isinstance(verdict, TurnedAway) and "ada, who made it, may no longer add nodes" in verdict.message
    removal.remove(store, "ada", 1003.0)
    assert isinstance(join_tokens.judge(store, secret.encode(), 1004.0), TurnedAway)


def test_wrong_token_learns_nothing(store):
    view, secret = join_tokens.make(store, None, "", 1000.0)
    join_tokens.revoke(store, view.id, 1001.0)
    other = f"{secret[:-1]}{'a' if secret[-1] != 'a' else 'b'}"
    for wrong in (other, secret[:20], f"{secret}x", "", "é", "rzjoin-00000000-" + "x" * 43):
        assert join_tokens.judge(store, wrong.encode(), 1002.0) is None


def test_uses_are_counted_and_the_newest_stands_first(store):
    old, _ = join_tokens.make(store, None, "old", 1000.0)
    new, secret = join_tokens.make(store, None, "new", 2000.0)
    join_tokens.used(store, old.id, 2500.0)
    join_tokens.used(store, old.id, 2600.0)
    tokens = join_tokens.every(store)
    assert [(t.name, t.uses, t.last_used_at) for t in tokens] == [("new", 0, None), ("old", 2, 2600.0)]
    assert new == tokens[0] and secret not in repr(tokens)


def test_last_use_ends_a_token(store):
    view, secret = join_tokens.make(store, None, "", 1000.0, most_uses=2)
    join_tokens.used(store, view.id, 1001.0)
    assert join_tokens.judge(store, secret.encode(), 1002.0) == Admitted(view.id)
    join_tokens.used(store, view.id, 1060.0)
    assert isinstance(join_tokens.judge(store, secret.encode(), 1061.0), TurnedAway)
    assert join_tokens.every(store)[0].revoked_at == 1060.0


def test_ended_tokens_are_listed_for_a_week(store):
    revoked, _ = join_tokens.make(store, 1e6, "revoked", 1000.0)
    join_tokens.revoke(store, revoked.id, 1500.0)
    join_tokens.make(store, 500, "expired", 1000.0)
    join_tokens.make(store, 1e6, "valid", 1000.0)
    for now, names in ((1500.0, {"revoked", "expired", "valid"}), (1501.0, {"valid"})):
        new, _ = join_tokens.make(store, None, "", now + join_tokens.ENDED_KEPT_S)
        assert {token.name for token in join_tokens.every(store) if token.id != new.id} == names
        join_tokens.revoke(store, new.id, 1.0)


def test_the_store_keeps_no_secret(store):
    _, secret = join_tokens.make(store, None, "", 1000.0)
    with store.read() as session:
        assert secret not in str(session.execute(text("select * from join_tokens")).all())


@pytest.mark.parametrize(("ttl_s", "name"), [(59, ""), (1e9, ""), (float("nan"), ""), (60, "a\nb"), (60, "x" * 201)])
def test_wrong_token_request_is_refused_in_a_sentence(sqlite_store, ttl_s, name):
    with pytest.raises(InvalidRequest, match=r"\.$"):
        join_tokens.make(sqlite_store, ttl_s, name, 1000.0)

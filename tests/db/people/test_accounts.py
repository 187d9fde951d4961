"""Accounts, invitations, sessions and projects in both stores."""

from __future__ import annotations

import pytest

from db import acting
from db.engine import Store
from db.people import accounts, invitations, login_sessions, projects, removal, users
from db.people.accounts import NewAccount, NoSuchUser
from db.people.admission import Admission, NotAdmitted, Vouched, admit
from db.people.invitations import InvitationEnded
from db.people.login_sessions import StoredSession
from domain.people.rights import rights_of_owner
from domain.people.roles import Role
from domain.requests.errors import InvalidRequest

pytestmark = pytest.mark.both_stores
DAY_S = 24 * 3600.0


def joined(store: Store, name: str, role: Role | None = Role.MEMBER, now: float = 1.0) -> str:
    with store.write() as session:
        accounts.create(session, NewAccount(name, f"{name}@lab.example", role), now)
    return name


def begun(store: Store, key: str, user: str, now: float) -> str:
    login_sessions.begin(store, StoredSession(key, user, "password", "10.0.0.1", now, now + DAY_S))
    return key


def test_sessions_end_one_by_one_all_but_one_and_by_time(store: Store) -> None:
    ana, ben = joined(store, "ana"), joined(store, "ben")
    keys = [begun(store, key, ana, 10.0) for key in ("a", "b", "c")] + [begun(store, "d", ben, 10.0)]
    login_sessions.end(store, "a", 11.0)
    assert login_sessions.open_ones(store, keys, 12.0).keys() == {"b", "c", "d"}
    login_sessions.end_all(store, ana, 13.0, but="b")
    assert login_sessions.open_ones(store, keys, 14.0).keys() == {"b", "d"}
    assert [session.secret_hash for session in login_sessions.of_person(store, ana, 14.0)] == ["b"]
    assert login_sessions.open_ones(store, keys, 10.0 + DAY_S) == {}
    removal.remove(store, ben, 15.0)
    assert login_sessions.open_ones(store, keys, 16.0).keys() == {"b"}


def test_an_invitation_is_good_once_for_one_project(store: Store) -> None:
    with acting.acting(rights_of_owner()):
        _, old = invitations.make(store, "ana@lab.example", Role.MEMBER, "vision", 7, 10.0)
        view, secret = invitations.make(store, "ana@lab.example", Role.ADMIN, "vision", 7, 11.0)
        _, other = invitations.make(store, "ana@lab.example", Role.VIEWER, None, 7, 12.0)
    with pytest.raises(InvitationEnded, match="was revoked"):
        invitations.of_secret(store, old, 13.0)
    assert invitations.of_secret(store, other, 13.0).project is None
    with pytest.raises(InvitationEnded, match="has expired"):
        invitations.of_secret(store, secret, 11.0 + 7 * DAY_S)
    with store.write() as session:
        invitations.accept(session, secret, NewAccount("ana", None, None, "hash"), 14.0)
    with pytest.raises(InvitationEnded, match="has been used"):
        invitations.of_secret(store, secret, 15.0)
    rights = users.rights_of(store, "ana")
    assert rights is not None and rights.everywhere is None and rights.in_projects == {"vision": Role.ADMIN}
    assert invitations.one(store, view.id).accepted_by == "ana"


def test_names_and_addresses_are_one_persons(store: Store) -> None:
    joined(store, "ana")
    with pytest.raises(InvalidRequest, match="name ana is taken"):
        joined(store, "ana")
    joined(store, "ben")
    with pytest.raises(InvalidRequest, match="has an account here already"):
        accounts.set_email(store, "ben", "ana@lab.example")
    removal.remove(store, "ana", 2.0)
    accounts.set_email(store, "ben", "ana@lab.example")
    with pytest.raises(NoSuchUser):
        accounts.named(store, "ana")
    assert [view.name for view in accounts.every(store)] == ["ben", "owner"]


def test_whom_a_provider_vouches_for_gets_in_by_identity_address_or_domain(store: Store) -> None:
    lab = Admission(("lab.example",), Role.VIEWER, makes_accounts=True)
    joined(store, "ana", Role.ADMIN)
    assert admit(store, Vouched("ana@lab.example", "id 1"), lab, 3.0) == "ana"
    assert admit(store, Vouched("married@lab.example", "id 1"), lab, 4.0) == "ana"
    assert admit(store, Vouched("Zoë-1@lab.example", "id 2"), lab, 5.0) == "zoe-1"
    with pytest.raises(NotAdmitted, match="another person"):
        admit(store, Vouched("ana@lab.example", "id 3"), lab, 6.0)
    for stranger in ("ben@elsewhere.example", "ben@sub.lab.example", "lab.example@evil.example"):
        with pytest.raises(NotAdmitted, match="may not sign in here"):
            admit(store, Vouched(stranger, "id 4"), lab, 7.0)
    with pytest.raises(NotAdmitted, match="ask an admin"):
        admit(store, Vouched("ben@elsewhere.example", "id 4"), Admission(), 8.0)


def test_private_projects_are_listed_for_their_members_alone(store: Store) -> None:
    joined(store, "ana", Role.ADMIN)
    joined(store, "ben", Role.ADMIN)
    ana, ben = users.rights_of(store, "ana"), users.rights_of(store, "ben")
    assert ana is not None and ben is not None
    with acting.acting(ana):
        projects.set_privacy(store, "vision", True, 5.0)
    ana, ben = users.rights_of(store, "ana"), users.rights_of(store, "ben")
    assert ana is not None and ben is not None
    with acting.acting(ana):
        assert [(view.name, view.role) for view in projects.every(store)] == [("vision", Role.ADMIN)]
        assert [(member.name, member.role) for member in projects.members(store, "vision")] == [
            ("ana", Role.ADMIN),
            ("owner", Role.OWNER),
        ]
    with acting.acting(ben):
        assert projects.every(store) == []

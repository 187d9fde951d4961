"""Access tokens: whoever sends one may do what its person may, within its bounds, and nothing once it has ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from sqlalchemy import delete, select, update
from websockets.exceptions import ConnectionClosed

from db import acting
from db.models import AccessToken, Membership, User
from db.people import audit
from db.people.audit import AuditFilter
from domain.people.roles import Scope
from domain.people.tokens import TokenWanted
from tests.dashboard.running import LIMIT_S, Running
from tests.end_to_end.product import wait_for


@pytest.fixture(autouse=True)
def nobody_else(shared: Running) -> Iterator[None]:
    """The people and tokens of each test are gone after it."""
    yield
    with shared.service.store.write() as session:
        session.execute(delete(AccessToken))
        session.execute(delete(User).where(User.name != "owner"))
    shared.service.identities.forget()


def add_person(shared: Running, name: str, role: str | None, **projects: str) -> None:
    with shared.service.store.write() as session:
        session.add(User(name=name, role=role, created_at=1.0, sessions_since=0.0))
        session.flush()
        session.add_all(Membership(user=name, project=project, role=given) for project, given in projects.items())
    shared.service.identities.forget()


def change_person(shared: Running, name: str, **values: Any) -> None:
    with shared.service.store.write() as session:
        session.execute(update(User).where(User.name == name).values(values))
    shared.service.identities.forget()


def token_of(shared: Running, person: str, scope: str = "admin", **more: Any) -> str:
    """A token that the person made: with the login token alone only the owner can."""
    rights = shared.service.identities.rights(person)
    assert rights is not None
    with acting.acting(rights):
        wanted = {"name": f"{person} {scope}", "scope": Scope(scope)} | more
        return shared.service.access_tokens.make(TokenWanted(**wanted))[1]


def client(shared: Running, secret: str) -> httpx2.Client:
    return shared.anonymous(Authorization=f"Bearer {secret}")


def refusal(answer: httpx2.Response) -> str:
    return str(answer.json()["detail"]["message"])


def launched(http: httpx2.Client, project: str = "default") -> httpx2.Response:
    return http.post("/api/runs", json={"target": "image_classifier", "gpus_per_node": 1, "project": project})


def test_only_the_creation_shows_the_secret_and_the_store_has_a_hash(shared: Running) -> None:
    made = shared.http.post("/api/tokens", json={"name": "ci", "scope": "launch", "project": "vision"})
    assert made.status_code == 201 and made.headers["cache-control"] == "no-store"
    secret = made.json()["token"]
    assert secret.startswith("rz_") and len(secret) == 46
    (listed,) = shared.http.get("/api/tokens").json()
    assert (listed["name"], listed["scope"], listed["project"]) == ("ci", "launch", "vision")
    assert listed["last_used_at"] is None and listed["expires_at"] == pytest.approx(listed["created_at"] + 90 * 86_400)
    assert secret not in shared.http.get("/api/tokens").text
    assert secret.encode() not in (shared.service.settings.data / "rankzero.db").read_bytes()


def test_scope_and_project_bound_what_a_token_may(shared: Running) -> None:
    add_person(shared, "ana", "member")
    reads, launches = token_of(shared, "ana", "read"), token_of(shared, "ana", "launch", project="vision")
    assert client(shared, reads).get("/api/runs").status_code == 200
    refused = launched(client(shared, reads))
    assert refused.status_code == 403
    assert refusal(refused).startswith("The scope of token ana read is read: it may not launch.")
    assert launched(client(shared, launches), "other").status_code == 403
    run = launched(client(shared, launches), "vision")
    assert run.status_code == 201
    assert client(shared, launches).post(f"/api/runs/{run.json()['id']}/stop").status_code == 403
    other = shared.launch()
    assert client(shared, launches).get(f"/api/runs/{other}").status_code == 404


def test_making_and_revoking_are_in_the_audit_log(shared: Running) -> None:
    shared.http.post("/api/tokens", json={"name": "kept-track-of", "scope": "read"})
    shared.http.delete("/api/tokens/kept-track-of")
    written = [
        entry for entry in audit.entries(shared.service.store, AuditFilter(), 10) if "kept-track" in entry.object
    ]
    assert [(entry.by, entry.action) for entry in written] == [("owner", "token-revoked"), ("owner", "token-made")]


def test_role_is_looked_up_anew(shared: Running) -> None:
    add_person(shared, "ana", "member")
    secret = token_of(shared, "ana")
    assert launched(client(shared, secret)).status_code == 201
    change_person(shared, "ana", role="viewer")
    assert launched(client(shared, secret)).status_code == 403
    change_person(shared, "ana", removed_at=1.0)
    answer = client(shared, secret).get("/api/runs")
    assert answer.status_code == 401 and refusal(answer) == "ana, who owns this token, no longer has an account here."


def test_revoked_and_expired_tokens_open_nothing_and_say_why(shared: Running) -> None:
    secret = shared.http.post("/api/tokens", json={"name": "a", "scope": "read"}).json()["token"]
    assert client(shared, secret).get("/api/runs").status_code == 200
    assert shared.http.delete("/api/tokens/a").status_code == 200
    answer = client(shared, secret).get("/api/runs")
    assert answer.status_code == 401 and refusal(answer).startswith("The token a was revoked at ")
    assert shared.http.delete("/api/tokens/a").status_code == 404
    short = shared.http.post("/api/tokens", json={"name": "b", "scope": "read", "lasts_s": 60}).json()["token"]
    with shared.service.store.write() as session:
        session.execute(update(AccessToken).where(AccessToken.name == "b").values(expires_at=2.0))
    answer = client(shared, short).get("/api/runs")
    assert answer.status_code == 401 and refusal(answer) == "The token b expired at 1970-01-01 00:00 UTC."


def test_revoked_token_closes_its_live_connections_and_no_others(shared: Running) -> None:
    secrets = [shared.http.post("/api/tokens", json={"name": name, "scope": "read"}).json()["token"] for name in "ab"]
    path = f"/api/live?run={shared.launch()}"
    ending, staying = (shared.connect(path, {"Authorization": f"Bearer {secret}"}) for secret in secrets)
    with ending, staying:
        assert shared.http.delete("/api/tokens/a").status_code == 200
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                ending.recv(timeout=LIMIT_S)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        staying.ping().wait(LIMIT_S)


def test_person_who_is_removed_loses_open_connections(shared: Running) -> None:
    add_person(shared, "ana", "viewer")
    path = f"/api/live?run={shared.launch()}"
    bearer = {"Authorization": f"Bearer {token_of(shared, 'ana')}"}
    with shared.connect(path, bearer) as live:
        change_person(shared, "ana", removed_at=1.0)
        with pytest.raises(ConnectionClosed):
            while True:
                live.recv(timeout=LIMIT_S)


@pytest.mark.parametrize("scope", ["read", "launch", "act"])
def test_token_below_admin_makes_and_revokes_none_but_itself(shared: Running, scope: str) -> None:
    add_person(shared, "ana", "admin")
    http = client(shared, token_of(shared, "ana", scope, name="mine"))
    token_of(shared, "ana", name="other")
    answer = http.post("/api/tokens", json={"name": "new", "scope": "read"})
    assert answer.status_code == 403 and f"The scope of token mine is {scope}" in refusal(answer)
    assert http.delete("/api/tokens/other").status_code == 403
    assert http.get("/api/tokens?all=true").status_code == 403
    assert http.delete("/api/tokens/mine").status_code == 200
    assert http.get("/api/tokens").status_code == 401


def test_nobody_makes_a_token_that_may_more_than_they(shared: Running) -> None:
    add_person(shared, "ana", None, vision="member")
    http = client(shared, token_of(shared, "ana", project="vision"))
    assert http.post("/api/tokens", json={"name": "all", "scope": "read"}).status_code == 403
    assert http.post("/api/tokens", json={"name": "one", "scope": "read", "project": "vision"}).status_code == 201
    own = client(shared, token_of(shared, "ana", name="own"))
    assert own.post("/api/tokens", json={"name": "x", "scope": "read", "project": "hidden"}).status_code == 403


def test_token_of_one_project_knows_no_other(shared: Running) -> None:
    add_person(shared, "ana", "member", vision="admin", moonshot="member")
    http = client(shared, token_of(shared, "ana", project="vision"))
    token_of(shared, "ana", name="other", project="moonshot")
    assert http.get("/api/whoami").json()["projects"] == {"vision": "admin"}
    assert [one["name"] for one in http.get("/api/tokens").json()] == ["ana admin"]
    assert http.delete("/api/tokens/other").status_code == 404
    assert http.delete("/api/tokens/ana admin").status_code == 200


def test_admins_see_and_revoke_all_tokens_others_their_own(shared: Running) -> None:
    add_person(shared, "ana", "member")
    add_person(shared, "ben", "member")
    ana, ben = client(shared, token_of(shared, "ana")), client(shared, token_of(shared, "ben"))
    assert [token["name"] for token in ana.get("/api/tokens").json()] == ["ana admin"]
    assert ana.get("/api/tokens?all=1").status_code == 403
    assert ana.delete("/api/tokens/ben admin?user=ben").status_code == 403
    assert {token["user"] for token in shared.http.get("/api/tokens?all=1").json()} == {"ana", "ben"}
    assert shared.http.delete("/api/tokens/ben admin?user=ben").status_code == 200
    assert (ben.get("/api/runs").status_code, ana.get("/api/runs").status_code) == (401, 200)


def test_last_use_is_listed(shared: Running) -> None:
    secret = shared.http.post("/api/tokens", json={"name": "ci", "scope": "read"}).json()["token"]
    client(shared, secret).get("/api/runs")
    (listed,) = shared.http.get("/api/tokens").json()
    assert listed["last_used_at"] is not None
    assert shared.http.get("/api/users/owner").json()["last_seen_at"] >= listed["last_used_at"]


def test_last_use_is_stored_without_anybody_asking(shared: Running) -> None:
    secret = shared.http.post("/api/tokens", json={"name": "ci", "scope": "read"}).json()["token"]
    client(shared, secret).get("/api/runs")

    def stored() -> float | None:
        with shared.service.store.read() as session:
            return session.scalars(select(AccessToken.last_used_at).where(AccessToken.name == "ci")).one()

    wait_for(stored, "the use to be stored", LIMIT_S)


@pytest.mark.parametrize(
    "wanted",
    [
        {"name": "", "scope": "read"},
        {"name": "a/b", "scope": "read"},
        {"name": "a", "scope": "owner"},
        {"name": "a", "scope": "read", "lasts_s": 1},
        {"name": "a", "scope": "read", "lasts_s": 1e12},
        {"name": "taken", "scope": "read"},
    ],
)
def test_invalid_tokens_are_refused(shared: Running, wanted: dict[str, Any]) -> None:
    shared.http.post("/api/tokens", json={"name": "taken", "scope": "read"})
    assert shared.http.post("/api/tokens", json=wanted).status_code == 422


def test_whoami_names_person_roles_and_token(shared: Running) -> None:
    assert shared.http.get("/api/whoami").json() == {"name": "owner", "role": "owner", "projects": {}, "token": None}
    add_person(shared, "ana", "viewer", vision="admin")
    assert client(shared, token_of(shared, "ana", "act")).get("/api/whoami").json() == {
        "name": "ana",
        "role": "viewer",
        "projects": {"vision": "admin"},
        "token": {"name": "token ana act", "scope": "act", "project": None, "budget": None},
    }

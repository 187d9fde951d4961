"""People over the API: who may invite, give roles, remove and see whom; private projects; one's own account."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from domain.people.roles import Role
from tests.dashboard.persons import browser_of, person
from tests.dashboard.running import Running


@pytest.fixture
def people(dashboard: Running) -> dict[str, httpx2.Client]:
    """The browsers of five people, one of whom is an admin of the project `vision` alone, another its member."""
    roles: dict[str, dict[str, Any]] = {
        "ana": {"role": Role.ADMIN},
        "ben": {"role": Role.MEMBER},
        "cem": {"role": Role.VIEWER},
        "dora": {"vision": Role.ADMIN},
        "eve": {"vision": Role.MEMBER},
    }
    for name, role in roles.items():
        person(dashboard.service, name, **role)
    return {name: browser_of(dashboard, name) for name in (*roles, "owner")}


def test_the_first_person_is_the_owner_and_everybody_says_who_they_are(people: dict[str, httpx2.Client]) -> None:
    me = people["owner"].get("/api/me").json()
    assert (me["name"], me["role"], me["projects"], me["email"]) == ("owner", "owner", {}, None)
    me = people["dora"].get("/api/me").json()
    assert (me["name"], me["role"], me["projects"]) == ("dora", None, {"vision": "admin"})


def test_an_invitation_makes_one_account_once(dashboard: Running) -> None:
    made = dashboard.http.post("/api/invitations", json={"email": " Ana@Lab.example ", "role": "member"})
    assert made.status_code == 201 and set(made.json()) == {"link", "expires_at", "id", "user", "doubt"}
    link = made.json()["link"].removeprefix(dashboard.url)
    visitor = dashboard.anonymous()
    page = visitor.get(link)
    assert page.status_code == 200 and "ana@lab.example" in page.text and 'value="ana"' in page.text
    assert "as a member of all projects" in page.text and page.headers["cache-control"] == "no-store"
    short = visitor.post(link, data={"name": "ana", "password": "short"})
    assert short.status_code == 422 and "at least 10 characters" in short.text
    taken = visitor.post(link, data={"name": "owner", "password": "correct horse"})
    assert taken.status_code == 422 and "The name owner is taken" in taken.text
    foreign = visitor.post(
        link, data={"name": "ana", "password": "correct horse"}, headers={"Origin": "http://evil.example"}
    )
    assert foreign.status_code == 403
    entered = visitor.post(link, data={"name": "ana", "password": "correct horse"})
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    me = visitor.get("/api/me").json()
    assert (me["name"], me["role"], me["email"]) == ("ana", "member", "ana@lab.example")
    again = dashboard.anonymous().get(link)
    assert again.status_code == 410 and "This invitation has been used." in again.text
    (listed,) = dashboard.http.get("/api/invitations").json()
    assert (listed["state"], listed["accepted_by"]) == ("accepted", "ana") and "secret" not in str(listed)
    known = dashboard.http.post("/api/invitations", json={"email": "ana@lab.example", "project": "vision"})
    assert known.status_code == 422 and "has an account here already" in known.text


def test_a_forgotten_password_is_set_anew_by_a_link_of_an_admin(
    dashboard: Running, people: dict[str, httpx2.Client]
) -> None:
    asked = {"email": "ben@lab.example"}
    assert [people[name].post("/api/invitations", json=asked).status_code for name in ("cem", "dora")] == [403, 403]
    first, link = (people["ana"].post("/api/invitations", json=asked).json()["link"] for _ in range(2))
    first, link = (one.removeprefix(dashboard.url) for one in (first, link))
    visitor = dashboard.anonymous()
    assert visitor.get(first).status_code == 410, "a newer link replaces it"
    assert "You are <strong>ben</strong>" in visitor.get(link).text
    assert visitor.post(link, data={"password": "short"}).status_code == 422
    assert people["ben"].get("/api/me").status_code == 200, "nothing has changed yet"
    assert visitor.post(link, data={"name": "mallory", "password": "correct horse"}).status_code == 303
    assert visitor.get("/api/me").json()["name"] == "ben"
    assert people["ben"].get("/api/me").status_code == 401
    assert dashboard.anonymous().post(link, data={"password": "battery staple"}).status_code == 410
    entered = dashboard.anonymous().post("/login", data={"person": "ben", "password": "correct horse"})
    assert entered.status_code == 303
    actions = [(one["action"], one["by"]) for one in people["owner"].get("/api/audit").json()]
    assert ("password-link-made", "ana") in actions and ("account-changed", "ben") in actions


@pytest.mark.parametrize("revoke", [False, True])
def test_password_link_revokes_access_tokens_where_the_person_says_so(
    dashboard: Running, people: dict[str, httpx2.Client], revoke: bool
) -> None:
    terms = {"name": "ci", "scope": "read", "project": None, "lasts_s": 3600.0}
    token = people["ben"].post("/api/tokens", json=terms).json()["token"]
    script = dashboard.anonymous(Authorization=f"Bearer {token}")
    link = people["ana"].post("/api/invitations", json={"email": "ben@lab.example"}).json()["link"]
    link, visitor = link.removeprefix(dashboard.url), dashboard.anonymous()
    assert "Also revoke my access\ntokens: ci. " in visitor.get(link).text and script.get("/api/me").is_success
    form = {"password": "correct horse"} | ({"revoke": "on"} if revoke else {})
    assert visitor.post(link, data=form).status_code == 303
    assert script.get("/api/me").status_code == (401 if revoke else 200)
    revoked = people["owner"].get("/api/audit", params={"action": "token-revoked"}).json()
    assert [(one["by"], one["object"]) for one in revoked] == ([("ben", "token ci")] if revoke else [])


def test_password_links_never_reach_the_owner_and_end_with_the_account(
    dashboard: Running, people: dict[str, httpx2.Client]
) -> None:
    assert people["owner"].patch("/api/me", json={"email": "boss@lab.example"}).status_code == 200
    refused = people["ana"].post("/api/invitations", json={"email": "boss@lab.example"})
    assert refused.status_code == 403 and "Only the owner sets" in refused.text
    assert people["owner"].post("/api/invitations", json={"email": "boss@lab.example"}).status_code == 201
    link = people["ana"].post("/api/invitations", json={"email": "ben@lab.example"}).json()["link"]
    assert people["ana"].delete("/api/users/ben").status_code == 200
    assert dashboard.anonymous().get(link.removeprefix(dashboard.url)).status_code == 410


def test_invitations_expire_are_revoked_and_replaced(dashboard: Running) -> None:
    def invited(**more: Any) -> tuple[str, str]:
        made = dashboard.http.post("/api/invitations", json={"email": "ana@lab.example", **more}).json()
        return made["id"], made["link"].removeprefix(dashboard.url)

    def shown(link: str) -> tuple[int, bool]:
        page = dashboard.anonymous().get(link)
        return page.status_code, any(word in page.text for word in ("has expired", "was revoked"))

    _, first = invited()
    second_id, second = invited()
    assert shown(first) == (410, True) and shown(second) == (200, False)
    assert dashboard.http.delete(f"/api/invitations/{second_id}").status_code == 200
    assert shown(second) == (410, True)
    _, third = invited(days=1)
    dashboard.pass_by(24 * 3600 + 1)
    assert shown(third) == (410, True)
    late = dashboard.anonymous().post(third, data={"name": "ana", "password": "correct horse"})
    assert late.status_code == 410
    assert dashboard.anonymous().get("/invite/unknown").status_code == 404
    for wrong in ({"email": "ana"}, {"email": "ana@lab.example", "role": "owner"}, {"email": "a@b.c", "days": 1000}):
        assert dashboard.http.post("/api/invitations", json=wrong).status_code == 422


def test_people_invite_and_give_roles_only_where_they_manage(
    dashboard: Running, people: dict[str, httpx2.Client]
) -> None:
    everywhere = {"email": "new@lab.example"}
    of_project = everywhere | {"project": "vision"}
    statuses = {
        name: (
            http.post("/api/invitations", json=everywhere).status_code,
            http.post("/api/invitations", json=of_project).status_code,
            http.patch("/api/users/cem", json={"role": "member", "project": "vision"}).status_code,
            http.patch("/api/users/cem", json={"role": "viewer"}).status_code,
            http.get("/api/users").status_code,
        )
        for name, http in people.items()
    }
    assert statuses == {
        "ana": (201, 201, 200, 200, 200),
        "ben": (403, 403, 403, 403, 403),
        "cem": (403, 403, 403, 403, 403),
        "dora": (403, 201, 200, 403, 200),
        "eve": (403, 403, 403, 403, 403),
        "owner": (201, 201, 200, 200, 200),
    }
    mine = people["dora"].get("/api/invitations").json()
    assert mine and {invitation["project"] for invitation in mine} == {"vision"}
    assert people["dora"].delete("/api/users/eve").status_code == 403
    assert people["ana"].patch("/api/users/owner", json={"role": "viewer"}).status_code == 409
    assert people["ana"].patch("/api/users/nobody", json={"role": "viewer"}).status_code == 404
    assert people["ana"].patch("/api/users/cem", json={"role": "owner"}).status_code == 422


def test_a_role_counts_at_once(dashboard: Running, people: dict[str, httpx2.Client]) -> None:
    spec = {"target": "image_classifier", "gpus_per_node": 1, "project": "speech"}
    dashboard.node()
    assert people["cem"].post("/api/runs", json=spec).status_code == 403
    given = people["owner"].patch("/api/users/cem", json={"role": "member", "project": "speech"}).json()
    assert given["projects"] == {"speech": "member"}
    assert people["cem"].post("/api/runs", json=spec).status_code == 201
    taken = people["owner"].patch("/api/users/cem", json={"role": None, "project": "speech"}).json()
    assert taken["projects"] == {}
    assert people["cem"].post("/api/runs", json=spec).status_code == 403


def test_a_private_project_is_there_for_its_members_alone(dashboard: Running, people: dict[str, httpx2.Client]) -> None:
    assert people["dora"].put("/api/projects/vision/privacy", json={"is_private": True}).json()["is_private"]
    assert [project["name"] for project in people["eve"].get("/api/projects").json()] == ["vision"]
    assert people["ana"].get("/api/projects").json() == []
    assert people["ana"].get("/api/projects/vision/members").status_code == 404
    assert people["ana"].patch("/api/users/ben", json={"role": "admin", "project": "vision"}).status_code == 403
    assert people["ana"].put("/api/projects/vision/privacy", json={"is_private": False}).status_code == 403
    seen = {user["name"]: user["projects"] for user in people["ana"].get("/api/users").json()}
    assert seen["dora"] == {} and seen["eve"] == {}
    members = {member["name"]: member["role"] for member in people["eve"].get("/api/projects/vision/members").json()}
    assert members == {"dora": "admin", "eve": "member", "owner": "owner"}
    assert people["eve"].put("/api/projects/vision/privacy", json={"is_private": False}).status_code == 403
    made = people["ana"].put("/api/projects/a%2Fb/privacy", json={"is_private": True})
    assert made.json() == {"name": "a/b", "is_private": True, "role": "admin"}
    assert people["ana"].get("/api/me").json()["projects"] == {"a/b": "admin"}
    assert people["owner"].put("/api/projects/vision/privacy", json={"is_private": False}).status_code == 200
    assert people["ana"].get("/api/projects/vision/members").status_code == 200


def test_users_are_listed_with_when_they_were_seen(dashboard: Running, people: dict[str, httpx2.Client]) -> None:
    people["ben"].get("/api/me")
    dashboard.service.sessions.tick()
    listed = {user["name"]: user for user in dashboard.http.get("/api/users").json()}
    assert {"name", "role", "projects", "last_seen_at"} <= listed["ben"].keys()
    assert listed["ben"]["last_seen_at"] is not None and "hash" not in str(listed)


def test_names_of_removed_people_are_not_given_again(dashboard: Running) -> None:
    person(dashboard.service, "ana", Role.MEMBER)
    assert dashboard.http.delete("/api/users/ana").status_code == 200
    made = dashboard.http.post("/api/invitations", json={"email": "ana@lab.example"}).json()
    link = made["link"].removeprefix(dashboard.url)
    assert 'value="ana2"' in dashboard.anonymous().get(link).text
    taken = dashboard.anonymous().post(link, data={"name": "ana", "password": "correct horse"})
    assert taken.status_code == 422


def test_the_owner_sets_an_address_and_a_password(dashboard: Running) -> None:
    owner = browser_of(dashboard, "owner", "token")
    early = owner.post("/api/me/password", json={"password": "correct horse"})
    assert early.status_code == 409 and "e-mail address first" in early.text
    assert owner.patch("/api/me", json={"email": "Boss@Lab.example"}).json()["email"] == "boss@lab.example"
    assert owner.post("/api/me/password", json={"password": "correct horse"}).status_code == 204
    assert owner.post("/api/me/password", json={"password": "battery staple"}).status_code == 204  # has the token
    browser = dashboard.anonymous()
    assert browser.post("/login", data={"person": "boss@lab.example", "password": "correct horse"}).status_code == 401
    assert browser.post("/login", data={"person": "Boss@lab.example", "password": "battery staple"}).status_code == 303
    assert browser.get("/api/me").json()["name"] == "owner"
    for weak in ("short", "owner", "aaaaaaaaaaaaaa", "boss@lab.example"):
        assert owner.post("/api/me/password", json={"password": weak}).status_code == 422


def test_a_role_in_a_project_that_nothing_names_is_said_and_given(
    dashboard: Running, people: dict[str, httpx2.Client]
) -> None:
    dashboard.node()
    dashboard.launch(project="speech")
    people["owner"].put("/api/projects/vizion/privacy", json={"is_private": True})

    def doubt(role: str | None, project: str) -> str | None:
        given = people["ana"].patch("/api/users/cem", json={"role": role, "project": project})
        assert given.status_code == 200, given.text
        return str(given.json()["doubt"]) if given.json()["doubt"] else None

    mistyped = "No run is in project 'visoin' (did you mean vision?): the role applies from its first run on."
    assert doubt("member", "visoin") == mistyped, "the private one with the closest name is not for ana to know"
    assert people["ana"].get("/api/users/cem").json()["projects"] == {"visoin": "member"}
    assert doubt("viewer", "visoin") is None, "the role itself names it now"
    assert doubt("viewer", "vision") is None and doubt("viewer", "speech") is None
    assert doubt("member", "qqqq") == "No run is in project 'qqqq': the role applies from its first run on."
    assert doubt(None, "Speech") == "No run is in project 'Speech' (did you mean speech?)."

    def invited(project: str) -> Any:
        body = {"email": "new@lab.example", "role": "member", "project": project}
        return people["ana"].post("/api/invitations", json=body).json()

    assert invited("visions")["doubt"].startswith("No run is in project 'visions' (did you mean vision")
    assert invited("visions")["doubt"] is None, "the first invitation names it"

"""Signing in with a name or address and a password: what the page shows, and how tries are slowed."""

from __future__ import annotations

import pytest

from dashboard.security.signing_in import sign_ins
from db.people import accounts, audit, passwords
from domain.people.roles import Role
from tests.dashboard.persons import browser_of, person
from tests.dashboard.running import Running

PASSWORD = "correct horse"


@pytest.fixture
def ana(dashboard: Running) -> str:
    """Somebody with a password."""
    name = person(dashboard.service, "ana", Role.MEMBER)
    accounts.set_password(dashboard.service.store, name, passwords.hashed(PASSWORD))
    return name


def test_one_person_alone_sees_the_page_as_it_was(dashboard: Running) -> None:
    page = dashboard.anonymous().get("/login").text
    assert 'name="token"' in page and "<details>" not in page and 'name="person"' not in page


def test_name_or_address_and_password_sign_in(dashboard: Running, ana: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_ins, "FIRST_DELAY_S", 0.0)
    page = dashboard.anonymous().get("/login").text
    assert page.index('name="person"') < page.index("<details>") < page.index('name="token"')
    for who in ("ana", " Ana@Lab.example"):
        browser = dashboard.anonymous()
        entered = browser.post("/login", data={"person": who, "password": PASSWORD, "next": "/nodes"})
        assert (entered.status_code, entered.headers["location"]) == (303, "/nodes")
        assert browser.get("/api/me").json()["name"] == ana
    assert refusal(dashboard, "ana", "wrong") == refusal(dashboard, "nobody", PASSWORD)
    assert refusal(dashboard, "owner", "") == refusal(dashboard, "nobody", PASSWORD)
    token = dashboard.anonymous().post("/login", data={"token": dashboard.token})
    assert token.status_code == 303
    (stored,) = [one.password_hash for one in [accounts.named_entry(dashboard.service.store, ana)]]
    assert stored is not None and stored.startswith("$argon2id$")


def test_wrong_token_is_asked_for_again_where_it_was_typed(dashboard: Running, ana: str) -> None:
    page = dashboard.anonymous().post("/login", data={"token": "wrong"}).text
    assert "Incorrect token." in page and "<details open>" in page
    assert page.count(" autofocus") == 1 and page.index('name="token"') < page.index(" autofocus")


def test_page_says_how_long_the_next_try_waits(dashboard: Running, ana: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_ins, "delay_s", lambda wrong: 0.0)
    assert "The next try" not in refusal(dashboard, "ana", "wrong")
    monkeypatch.setattr(sign_ins, "delay_s", lambda wrong: 4.0 if wrong == 3 else 0.0)
    page = dashboard.anonymous().post("/login", data={"person": "ana", "password": "wrong"}).text
    assert "The next try is answered after 4 s." in page


def refusal(dashboard: Running, name: str, password: str) -> str:
    """The page after a wrong password, without the name that it keeps."""
    page = dashboard.anonymous().post("/login", data={"person": name, "password": password})
    assert page.status_code == 401 and "Incorrect name or password." in page.text
    assert 'value="&quot;&gt;&lt;b&gt;"' in dashboard.anonymous().post("/login", data={"person": '"><b>'}).text
    kept = f'<input id="person" name="person" value="{name}"'
    assert kept in page.text and 'autocomplete="current-password" autofocus' in page.text
    return page.text.replace(kept, "")


def test_links_say_what_they_do_to_whoever_is_signed_in(dashboard: Running, ana: str) -> None:
    _, new = dashboard.service.people.invite("new@lab.example")
    _, forgotten = dashboard.service.people.invite("ana@lab.example")
    browser = dashboard.anonymous()
    browser.post("/login", data={"token": dashboard.token})
    sentence = "You are signed in as owner. The link is for the person named below"
    for link in (new, forgotten):
        assert sentence in browser.get(f"/invite/{link}").text
        assert sentence not in dashboard.anonymous().get(f"/invite/{link}").text
    browser.post("/login", data={"person": ana, "password": PASSWORD}, headers={"Origin": dashboard.url})
    assert "You are signed in as" not in browser.get(f"/invite/{forgotten}").text
    dashboard.anonymous().post(f"/invite/{forgotten}", data={"password": PASSWORD}, headers={"Origin": dashboard.url})
    assert 'href="/login"' in dashboard.anonymous().get(f"/invite/{forgotten}").text
    browser.post("/login", data={"person": ana, "password": PASSWORD}, headers={"Origin": dashboard.url})
    used = browser.get(f"/invite/{forgotten}").text
    assert "You are signed in as ana." in used and 'href="/login"' not in used


def test_another_person_in_the_same_browser_ends_the_session_before(dashboard: Running, ana: str) -> None:
    browser = dashboard.anonymous()
    browser.post("/login", data={"token": dashboard.token})
    before = dict(browser.cookies)
    again = browser.post("/login", data={"person": "ana", "password": PASSWORD}, headers={"Origin": dashboard.url})
    assert again.status_code == 303 and browser.get("/api/me").json()["name"] == ana
    earlier = dashboard.anonymous(Cookie="; ".join(f"{name}={value}" for name, value in before.items()))
    assert earlier.get("/api/me").status_code == 401


@pytest.mark.parametrize(("old", "problem"), [(None, "is needed"), ("wrong", "is wrong")])
def test_browser_left_open_takes_no_account_over(dashboard: Running, ana: str, old: str | None, problem: str) -> None:
    browser = browser_of(dashboard, ana)
    for method, path, change in (
        ("PATCH", "/api/me", {"email": "thief@lab.example"}),
        ("POST", "/api/me/password", {"password": "battery staple"}),
    ):
        answer = browser.request(method, path, json=change | ({"old": old} if old else {}))
        detail = answer.json()["detail"]
        assert (answer.status_code, detail["field"]) == (422, "old") and problem in detail["message"]
    assert browser.get("/api/me").json()["email"] == "ana@lab.example"
    moved = browser.patch("/api/me", json={"email": "ana@new.example", "old": PASSWORD})
    assert moved.json()["email"] == "ana@new.example"


def test_present_password_cannot_be_guessed_in_a_browser_left_open(dashboard: Running, ana: str) -> None:
    browser = browser_of(dashboard, ana)
    for _ in range(10):
        browser.patch("/api/me", json={"email": "thief@lab.example", "old": "wrong"})
    refused = browser.patch("/api/me", json={"email": "thief@lab.example", "old": PASSWORD})
    assert refused.status_code == 422 and "try again later" in refused.json()["detail"]["message"]


def test_what_happens_to_accounts_is_in_the_audit_log(dashboard: Running, ana: str) -> None:
    browser = dashboard.anonymous(Origin=dashboard.url)
    browser.post("/login", data={"person": "ana", "password": "wrong"})
    assert browser.get("/?token=wrong").status_code == 401
    browser.post("/login", data={"person": "ana", "password": PASSWORD})
    browser.post("/logout")
    dashboard.http.patch("/api/users/ana", json={"role": "admin"})
    dashboard.http.post("/api/invitations", json={"email": "ben@lab.example"})
    dashboard.http.put("/api/projects/vision/privacy", json={"is_private": True})
    dashboard.http.delete("/api/users/ana")
    entries = audit.entries(dashboard.service.store, audit.AuditFilter(), 100)
    assert [(entry.action, entry.by) for entry in reversed(entries)][-8:] == [
        ("sign-in-refused", None),
        ("sign-in-refused", None),
        ("signed-in", "ana"),
        ("signed-out", "ana"),
        ("role-changed", "owner"),
        ("invited", "owner"),
        ("project-made-private", "owner"),
        ("removed", "owner"),
    ]
    assert PASSWORD not in str(entries)

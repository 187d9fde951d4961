"""`rankzero login`: a command line waits, a signed-in person lets it in once, and guessing helps nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from sqlalchemy import delete, update

from dashboard.security.signing_in import device_logins
from dashboard.security.signing_in.device_logins import MOST_ASKED, MOST_WRONG, DeviceLogins, TooManyRequests
from db.models import AccessToken, LoginRequest
from db.people import projects
from db.people.login_requests import NoSuchRequest
from domain.people.rights import OWNER
from domain.people.roles import Scope
from domain.people.tokens import TokenWanted
from tests.dashboard.persons import browser_of
from tests.dashboard.running import Running


@pytest.fixture
def browser(shared: Running) -> Iterator[httpx2.Client]:
    browser = browser_of(shared, OWNER)
    browser.headers["Accept"] = "text/html"
    yield browser
    logins = shared.service.device_logins
    logins._asked._tries.clear()
    logins._wrong._tries.clear()
    with shared.service.store.write() as session:
        session.execute(delete(AccessToken))


def ask(shared: Running, **more: Any) -> dict[str, Any]:
    answer = shared.anonymous().post("/api/login-requests", json={"name": "laptop", "scope": "act"} | more)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def outcome(shared: Running, asked: dict[str, Any]) -> dict[str, Any]:
    question = {"code": asked["code"], "secret": asked["secret"]}
    return dict(shared.anonymous().post("/api/login-requests/outcome", json=question).json())


def decide(browser: httpx2.Client, asked: dict[str, Any], word: str = "allow") -> httpx2.Response:
    return browser.post("/device", data={"code": asked["code"], "answer": word})


def test_allowed_command_line_gets_a_token_of_its_scope(shared: Running, browser: httpx2.Client) -> None:
    asked = ask(shared)
    http = shared.anonymous(Authorization=f"Bearer {asked['secret']}")
    assert outcome(shared, asked) == {"state": "waiting", "token": None}
    assert http.get("/api/runs").status_code == 401
    page = browser.get(asked["path"]).text
    assert asked["code"] in page and "laptop" in page and "127.0.0.1" in page and "owner" in page
    assert "launch runs for you" in page and "scope act" in page and "For 90 days" in page
    assert outcome(shared, asked)["state"] == "waiting", "looking at the page allows nothing"
    assert "laptop is allowed" in decide(browser, asked).text
    allowed = outcome(shared, asked)
    assert (allowed["state"], allowed["token"]["name"], allowed["token"]["user"]) == ("allowed", "laptop", "owner")
    assert http.get("/api/whoami").json()["token"] == {
        "name": "token laptop", "scope": "act", "project": None, "budget": None,
    }  # fmt: skip
    assert decide(browser, asked).status_code == 404, "a request is answered once"
    second = ask(shared)
    decide(browser, second)
    assert outcome(shared, second)["token"]["name"] == "laptop-2"


def test_project_that_nothing_names_is_doubted_before_the_answer(shared: Running, browser: httpx2.Client) -> None:
    projects.set_privacy(shared.service.store, "vision", True, 0.0)
    mistyped, right = ask(shared, project="visoin"), ask(shared, project="vision")
    assert "No run is in project &#x27;visoin&#x27; (did you mean vision?)" in browser.get(mistyped["path"]).text
    assert "No run is in" not in browser.get(right["path"]).text
    for asked, doubt in ((mistyped, "No run is in project 'visoin': the token applies"), (right, "")):
        assert decide(browser, asked).status_code == 200
        assert (outcome(shared, asked)["token"]["doubt"] or "").startswith(doubt)
    projects.set_privacy(shared.service.store, "vision", False, 0.0)


def test_refused_and_expired_command_lines_get_nothing(shared: Running, browser: httpx2.Client) -> None:
    refused, late = ask(shared), ask(shared)
    assert "Denied" in decide(browser, refused, "refuse").text
    assert outcome(shared, refused) == {"state": "refused", "token": None}
    with shared.service.store.write() as session:
        session.execute(update(LoginRequest).where(LoginRequest.answered_at.is_(None)).values(expires_at=2.0))
    assert outcome(shared, late) == {"state": "expired", "token": None}
    assert decide(browser, late).status_code == 404
    for asked in (refused, late):
        assert shared.anonymous(Authorization=f"Bearer {asked['secret']}").get("/api/runs").status_code == 401


def test_nobody_else_lets_a_command_line_in(shared: Running, browser: httpx2.Client) -> None:
    asked = ask(shared)
    foreign = shared.anonymous(Cookie=browser.headers["cookie"], Origin="http://evil.example")
    assert decide(foreign, asked).status_code == 403
    without = shared.anonymous(Cookie=browser.headers["cookie"])
    assert decide(without, asked).status_code == 403
    assert decide(shared.anonymous(), asked).status_code == 401
    acting = shared.http.post("/api/tokens", json={"name": "acts", "scope": "act"}).json()["token"]
    assert decide(shared.anonymous(Authorization=f"Bearer {acting}"), asked).status_code == 403
    assert outcome(shared, asked)["state"] == "waiting"
    page = shared.anonymous(Accept="text/html").get(asked["path"])
    assert page.status_code == 401 and f'value="{asked["path"]}"' in page.text, "after signing in one is back here"


def test_guessing_codes_is_slowed(shared: Running, browser: httpx2.Client) -> None:
    asked = ask(shared)
    assert [browser.get("/device?code=BBBB-BBBB").status_code for _ in range(MOST_WRONG)] == [404] * MOST_WRONG
    assert decide(browser, asked).status_code == 429
    wrong = asked | {"secret": "rz_" + "a" * 43}
    assert [outcome(shared, wrong).get("state") for _ in range(MOST_WRONG)] == [None] * MOST_WRONG
    assert outcome(shared, asked)["state"] == "waiting", "others' tries stop no command line that waits"


def test_requests_of_one_address_are_limited(shared: Running, browser: httpx2.Client) -> None:
    for _ in range(MOST_ASKED):
        ask(shared)
    answer = shared.anonymous().post("/api/login-requests", json={"name": "laptop", "scope": "act"})
    assert answer.status_code == 429 and "wait ten minutes" in answer.text


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "", "a" * 61, "a\nb"])
def test_machines_have_plain_names(shared: Running, browser: httpx2.Client, name: str) -> None:
    answer = shared.anonymous().post("/api/login-requests", json={"name": name, "scope": "act"})
    assert answer.status_code == 422


def test_page_asks_for_the_code_where_the_address_has_none(shared: Running, browser: httpx2.Client) -> None:
    asked = ask(shared)
    assert 'name="code"' in browser.get("/device").text
    typed = asked["code"].lower().replace("-", " ")
    assert asked["code"] in browser.get("/device", params={"code": typed}).text
    escaped = browser.get("/device", params={"code": "<b>"})
    assert escaped.status_code == 404 and "<b>" not in escaped.text


def test_strangers_cannot_fill_the_table(dashboard: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_logins, "MOST_WAITING", 25)
    logins, terms = dashboard.service.device_logins, TokenWanted("laptop", Scope.ACT)
    dashboard.service.known_addresses.note("198.51.100.7", "ana")

    def ask_from(*hosts: str) -> list[tuple[str, str]]:
        asked = (logins.ask(terms, host) for host in hosts)
        return [(request.code, secret) for request, secret in asked]

    def left(asked: list[tuple[str, str]]) -> list[bool]:
        return [is_there(logins, *one) for one in asked]

    home = ask_from("198.51.100.7", "198.51.100.7")
    noisy = ask_from(*["203.0.113.1"] * MOST_ASKED)
    (person,) = ask_from("192.0.2.1")
    flood = ask_from(*(f"203.0.{number}.9" for number in range(21)))
    assert left([*home, person]) == [True] * 3, "who asked most makes room, and known addresses last"
    assert left(noisy) == [False] * (MOST_ASKED - 1) + [True] and left(flood) == [True] * 21
    more = ask_from(*(f"203.1.{number}.9" for number in range(250)))
    assert left(home) == [True] * 2 and sum(left(more)) == 23
    assert left(ask_from("192.0.2.2")) == [True], "a real person can still begin"
    with pytest.raises(TooManyRequests, match="from your address"):
        ask_from("203.0.113.1")


def is_there(logins: DeviceLogins, code: str, secret: str) -> bool:
    try:
        return logins.outcome(code, secret)[0] == "waiting"
    except NoSuchRequest:
        return False


@pytest.mark.parametrize("scope", ["read", "launch", "act"])
@pytest.mark.parametrize("word", ["allow", "refuse"])
def test_token_of_a_lower_scope_decides_nothing(shared: Running, browser: httpx2.Client, scope: str, word: str) -> None:
    asked = ask(shared, scope="read")
    token = shared.http.post("/api/tokens", json={"name": f"{scope} {word}", "scope": scope}).json()["token"]
    answer = decide(shared.anonymous(Authorization=f"Bearer {token}"), asked, word)
    assert answer.status_code == 403 and f"is {scope}" in answer.text
    assert outcome(shared, asked)["state"] == "waiting"


def test_token_of_one_project_refuses_no_login_beyond_it(shared: Running, browser: httpx2.Client) -> None:
    beyond, within = ask(shared), ask(shared, project="vision")
    wanted = {"name": "of vision", "scope": "admin", "project": "vision"}
    http = shared.anonymous(Authorization=f"Bearer {shared.http.post('/api/tokens', json=wanted).json()['token']}")
    assert decide(http, beyond, "refuse").status_code == 403
    assert decide(http, within, "refuse").status_code == 200
    assert [outcome(shared, one)["state"] for one in (beyond, within)] == ["waiting", "refused"]

"""Signing out: the cookie is worth nothing any more, wherever it was copied to, and its WebSockets close."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from dashboard.api.runs.live import NO_ROLE
from db.people import login_sessions
from db.trouble import Trouble
from domain.people.roles import Role
from tests.dashboard.persons import cookie_for, person
from tests.dashboard.running import LIMIT_S, FakeNode, Page, Running, running
from tests.end_to_end.product import wait_for


def cookie_of(shared: Running) -> str:
    return cookie_for(shared.service, "owner")


def browser(shared: Running, cookie: str) -> httpx2.Client:
    return shared.anonymous(Cookie=cookie, Origin=shared.url)


def test_signing_out_ends_the_session_and_no_other(shared: Running) -> None:
    mine, other = cookie_of(shared), cookie_of(shared)
    assert mine != other
    answer = browser(shared, mine).post("/logout")
    assert answer.status_code == 204
    assert "max-age=0" in answer.headers["set-cookie"].lower()
    assert browser(shared, mine).get("/api/runs").status_code == 401
    assert browser(shared, mine).post("/logout").status_code == 401
    assert browser(shared, other).get("/api/runs").status_code == 200


def test_the_login_page_says_that_one_is_signed_out(shared: Running) -> None:
    assert "You are signed out" in shared.anonymous().get("/login?signed-out").text
    assert "You are signed out" not in shared.anonymous().get("/login").text


@pytest.mark.parametrize("origin", ["http://evil.example", "null", None])
def test_another_site_cannot_sign_out(shared: Running, origin: str | None) -> None:
    cookie = cookie_of(shared)
    headers = {"Cookie": cookie} | ({"Origin": origin} if origin else {})
    assert shared.anonymous(**headers).post("/logout").status_code == 403
    assert browser(shared, cookie).get("/api/runs").status_code == 200


def test_websockets_of_the_session_are_closed_and_refused(shared: Running) -> None:
    mine, other = cookie_of(shared), cookie_of(shared)
    run_id = shared.launch()

    def opened(cookie: str):
        return shared.connect(f"/api/live?run={run_id}", {"Cookie": cookie, "Origin": shared.url})

    with opened(mine) as ending, opened(other) as staying:
        browser(shared, mine).post("/logout")
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                ending.recv(timeout=LIMIT_S)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        staying.send('{"type": "subscribe", "since": null}')
        assert staying.recv(timeout=LIMIT_S)
    with pytest.raises(InvalidStatus) as refused:
        opened(mine)
    assert refused.value.response.status_code == 401


def test_sessions_survive_a_restart_and_their_end_does_too(tmp_path: Path) -> None:
    with running(tmp_path / "data") as first:
        staying, ended = cookie_of(first), cookie_of(first)
        assert browser(first, ended).post("/logout").status_code == 204
        stored = b"".join(path.read_bytes() for path in first.service.settings.data.glob("rankzero.db*"))
        assert staying.partition("=")[2].encode() not in stored
    with running(tmp_path / "data") as second:
        assert browser(second, staying).get("/api/runs").status_code == 200
        assert browser(second, ended).get("/api/runs").status_code == 401
    (tmp_path / "data" / "token").unlink()
    with running(tmp_path / "data") as third:
        name = third.service.credentials.cookie_name
        cookie = f"{name}={staying.partition('=')[2]}"
        assert browser(third, cookie).get("/api/runs").status_code == 401


def test_sessions_end_after_their_time_and_their_websockets_with_them(tmp_path: Path) -> None:
    with running(tmp_path / "data", session_days=2.0) as it:
        it.node()
        cookie, run_id = cookie_of(it), it.launch()
        assert browser(it, cookie).get("/api/runs").status_code == 200
        with it.watching(run_id, Cookie=cookie, Origin=it.url) as page:
            page.subscribe()
            it.pass_by(2 * 24 * 3600 + 1)
            closed_by_server(page)
        assert browser(it, cookie).get("/api/runs").status_code == 401


def closed_by_server(page: Page) -> None:
    """Wait until the WebSocket is closed because its session has ended."""
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            page.socket.recv(timeout=LIMIT_S)
    assert closed.value.rcvd is not None and closed.value.rcvd.code in (1008, NO_ROLE)


def test_a_changed_password_ends_all_other_sessions(dashboard: Running, node: FakeNode) -> None:
    name = person(dashboard.service, "ana", Role.MEMBER)
    mine, other = cookie_for(dashboard.service, name), cookie_for(dashboard.service, name)
    owners, run_id = cookie_of(dashboard), dashboard.launch()
    assert browser(dashboard, mine).post("/api/me/password", json={"password": "correct horse"}).status_code == 204
    assert browser(dashboard, mine).get("/api/me").json()["has_password"] is True
    assert browser(dashboard, other).get("/api/me").status_code == 401
    assert browser(dashboard, owners).get("/api/me").status_code == 200
    again = cookie_for(dashboard.service, name)
    with dashboard.watching(run_id, Cookie=again, Origin=dashboard.url) as page:
        page.subscribe()
        wrong = browser(dashboard, mine).post("/api/me/password", json={"password": "battery staple", "old": "x"})
        assert (wrong.status_code, wrong.json()["detail"]["field"]) == (422, "old")
        right = {"password": "battery staple", "old": "correct horse"}
        assert browser(dashboard, mine).post("/api/me/password", json=right).status_code == 204
        closed_by_server(page)
    assert browser(dashboard, again).get("/api/me").status_code == 401


def test_one_signs_out_one_browser_the_others_or_everywhere(dashboard: Running) -> None:
    name = person(dashboard.service, "ana", Role.MEMBER)
    cookies = [cookie_for(dashboard.service, name) for _ in range(4)]
    strangers = cookie_of(dashboard)
    first = browser(dashboard, cookies[0])
    listed = first.get("/api/me/sessions").json()
    assert len(listed) == 4 and [session["is_current"] for session in listed].count(True) == 1
    others = browser(dashboard, cookies[1]).get("/api/me/sessions").json()
    (of_second,) = [session["id"] for session in others if session["is_current"]]
    assert browser(dashboard, strangers).delete(f"/api/me/sessions/{of_second}").status_code == 404
    assert first.delete(f"/api/me/sessions/{of_second}").status_code == 204
    assert [browser(dashboard, cookie).get("/api/me").status_code for cookie in cookies] == [200, 401, 200, 200]
    assert first.delete("/api/me/sessions?others=true").status_code == 204
    assert [browser(dashboard, cookie).get("/api/me").status_code for cookie in cookies] == [200, 401, 401, 401]
    assert first.delete("/api/me/sessions").status_code == 204
    assert first.get("/api/me").status_code == 401
    assert browser(dashboard, strangers).get("/api/me").status_code == 200


def test_a_removed_person_is_out_at_once(dashboard: Running, node: FakeNode) -> None:
    name = person(dashboard.service, "ana", Role.MEMBER)
    cookie, run_id = cookie_for(dashboard.service, name), dashboard.launch()
    with dashboard.watching(run_id, Cookie=cookie, Origin=dashboard.url) as page:
        page.subscribe()
        assert dashboard.http.delete("/api/users/ana").status_code == 200
        closed_by_server(page)
    assert browser(dashboard, cookie).get("/api/me").status_code == 401
    assert dashboard.http.delete("/api/users/owner").status_code == 409
    assert dashboard.http.delete("/api/users/ana").status_code == 404


def test_a_session_that_ended_at_another_dashboard_ends_here(dashboard: Running, node: FakeNode) -> None:
    cookie, run_id = cookie_of(dashboard), dashboard.launch()
    key = dashboard.service.credentials.session_key(cookie.partition("=")[2])
    with dashboard.watching(run_id, Cookie=cookie, Origin=dashboard.url) as page:
        page.subscribe()
        assert browser(dashboard, cookie).get("/api/me").status_code == 200
        login_sessions.end(dashboard.service.store, key, dashboard.service.clock())
        closed_by_server(page)
    assert browser(dashboard, cookie).get("/api/me").status_code == 401


def test_the_owner_gets_in_while_the_store_takes_nothing(dashboard: Running) -> None:
    with sqlite3.connect(dashboard.service.settings.data / "rankzero.db", timeout=60) as foreign:
        foreign.execute("begin exclusive")
        dashboard.service.store.trouble = Trouble.LOCKED  # before, the dashboard might find that it is not so
        entered = dashboard.anonymous().get("/", params={"token": dashboard.token})
        cookie = entered.headers["set-cookie"].partition(";")[0]
        assert entered.status_code == 303
        foreign.rollback()
    assert browser(dashboard, cookie).get("/api/me").json()["name"] == "owner"
    dashboard.service.store.trouble = None
    wait_for(lambda: len(dashboard.service.people.sessions()) == 1, "the session to be stored")
    assert browser(dashboard, cookie).post("/logout").status_code == 204
    assert browser(dashboard, cookie).get("/api/me").status_code == 401


def test_a_sign_out_at_one_dashboard_is_heard_of_at_the_other(tmp_path: Path, postgres_url: str) -> None:
    shared = {"database_url": postgres_url, "files": tmp_path / "files"}
    with running(tmp_path / "one", **shared) as one:
        (tmp_path / "two").mkdir(mode=0o700)
        (tmp_path / "two" / "token").write_text(one.token)
        with running(tmp_path / "two", **shared) as two:
            one.node()
            cookie, run_id = cookie_of(one), one.launch()
            assert browser(two, cookie).get("/api/me").json()["name"] == "owner"
            with two.watching(run_id, Cookie=cookie, Origin=two.url) as page:
                page.subscribe()
                assert browser(one, cookie).post("/logout").status_code == 204
                closed_by_server(page)
            assert browser(two, cookie).get("/api/me").status_code == 401

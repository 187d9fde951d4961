"""Signing in at a provider that runs here: who gets in, as whom, and what each refusal says."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from flask import Flask, jsonify, redirect, request
from werkzeug.serving import make_server

from dashboard.security.signing_in import provider, provider_sign_in
from dashboard.security.signing_in.provider_sign_in import AT_ONCE, MOST_WAITING
from db.people import audit
from domain.people.audit import AuditAction
from domain.people.roles import Role
from tests.dashboard.persons import person
from tests.dashboard.running import LIMIT_S, Running, running
from tests.end_to_end.product import wait_for

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it still imports a module that Authlib gives up
    from oidc_provider_mock import User, run_server_in_thread

pytestmark = pytest.mark.filterwarnings("ignore:get_jwt_config:DeprecationWarning")

VERIFIED = {"email_verified": True, "groups": ["vision"]}
PEOPLE = [
    User(sub="1", claims={"email": "Ana@Lab.example"} | VERIFIED),
    User(sub="2", claims={"email": "ben@elsewhere.example"} | VERIFIED),
    User(sub="3", claims={"email": "cem@lab.example", "email_verified": True, "groups": ["speech"]}),
    User(sub="4", claims={"email": "dora@lab.example", "email_verified": False, "groups": ["vision"]}),
    User(sub="5", claims={"groups": ["vision"]}),
    User(sub="6", claims={"email": "ana@lab.example"} | VERIFIED),
]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dashboard waits for its provider as long as this machine stands still."""
    monkeypatch.setattr(provider, "TIMEOUT_S", LIMIT_S)


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    """A provider with those people."""
    with run_server_in_thread(user_claims=PEOPLE) as server:
        yield f"http://localhost:{server.server_port}"


@contextmanager
def lab(data: Path, issuer: str, **more: Any) -> Iterator[Running]:
    """A dashboard that sends people to that provider."""
    known = {"oidc_issuer": issuer, "oidc_client_id": "rankzero", "oidc_client_secret": "hush", "oidc_name": "Lab ID"}
    with running(data, **known | {"email_domains": ["lab.example"]} | more) as dashboard:
        yield dashboard


def leave(browser: httpx2.Client, query: str = "") -> str:
    """The address at the provider to which a click on the button leads."""
    answer = browser.get(f"/login/provider?{query}")
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def decide(address: str, sub: str) -> str:
    """The address to which the provider sends a browser back after its person has signed in there."""
    form = {"action": "deny"} if sub == "deny" else {"sub": sub}
    answer = httpx2.post(address, data=form, timeout=60)
    assert answer.status_code == 302, answer.text
    back = str(answer.headers["location"])
    state = parse_qs(urlsplit(address).query)["state"][0]
    return back if "state=" in back else f"{back}&state={state}"  # this one leaves it out when somebody denies


def sign_in(dashboard: Running, sub: str, query: str = "") -> tuple[httpx2.Response, httpx2.Client]:
    browser = dashboard.anonymous()
    back = decide(leave(browser, query), sub)
    return browser.get(back), browser


def refused_names(dashboard: Running) -> list[str]:
    """The names of refused sign-ins in the audit log."""
    refused = audit.AuditFilter(action=AuditAction.SIGN_IN_REFUSED)
    return [entry.object for entry in audit.entries(dashboard.service.store, refused, 100)]


def test_somebody_of_the_domain_gets_an_account_and_keeps_it(tmp_path: Path, issuer: str) -> None:
    with lab(tmp_path / "data", issuer, oidc_groups=["vision"]) as dashboard:
        page = dashboard.anonymous().get("/login?next=/nodes").text
        assert "Sign in with Lab ID" in page and "next=%2Fnodes" in page and "<details>" in page
        entered, browser = sign_in(dashboard, "1", "next=/nodes")
        assert (entered.status_code, entered.headers["location"]) == (303, "/nodes")
        me = browser.get("/api/me").json()
        assert (me["name"], me["email"], me["role"]) == ("ana", "ana@lab.example", "viewer")
        _, again = sign_in(dashboard, "1")
        assert again.get("/api/me").json()["name"] == "ana"
        impostor, _ = sign_in(dashboard, "6")
        assert impostor.status_code == 403 and "is another person" in impostor.text


def test_a_password_does_not_keep_open_what_the_provider_closes(tmp_path: Path, issuer: str) -> None:
    with lab(tmp_path / "data", issuer) as dashboard:
        _, browser = sign_in(dashboard, "1")
        browser.headers["Origin"] = dashboard.url
        refused = browser.post("/api/me/password", json={"password": "correct horse"})
        assert refused.status_code == 403 and "An admin's link" in refused.json()["detail"]["message"]
        link = dashboard.http.post("/api/invitations", json={"email": "ana@lab.example"}).json()["link"]
        form = {"password": "correct horse"}
        assert (
            dashboard.anonymous(Origin=dashboard.url).post(link.removeprefix(dashboard.url), data=form).status_code
            == 303
        )
        _, browser = sign_in(dashboard, "1")
        browser.headers["Origin"] = dashboard.url
        change = {"password": "battery staple", "old": "correct horse"}
        assert browser.post("/api/me/password", json=change).is_success


@pytest.mark.parametrize(
    ("sub", "sentence"),
    [
        ("2", "Addresses such as ben@elsewhere.example may not sign in here."),
        ("3", "You are in none of the groups that may sign in here."),
        ("4", "Lab ID has not verified your address dora@lab.example"),
        ("5", "Lab ID sent no e-mail address for you."),
        ("deny", "Lab ID did not let you in."),
    ],
)
def test_whoever_may_not_is_told_why(guarded: Running, sub: str, sentence: str) -> None:
    refused, browser = sign_in(guarded, sub)
    assert refused.status_code == 403 and sentence in refused.text
    assert refused.headers["cache-control"] == "no-store"
    assert browser.get("/api/me").status_code == 401
    assert [user["name"] for user in guarded.http.get("/api/users").json()] == ["owner"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, issuer: str) -> Iterator[Running]:
    """A dashboard for people of one domain and group."""
    with lab(tmp_path_factory.mktemp("guarded") / "data", issuer, oidc_groups=["vision"]) as dashboard:
        yield dashboard


def test_a_way_back_is_good_once_and_in_the_browser_that_left(tmp_path: Path, issuer: str) -> None:
    with lab(tmp_path / "data", issuer) as dashboard:
        browser, other = dashboard.anonymous(), dashboard.anonymous()
        asked = parse_qs(urlsplit(leave(browser)).query)
        assert {"state", "nonce", "code_challenge"} <= asked.keys() and asked["code_challenge_method"] == ["S256"]
        kept = dict(browser.cookies)
        back = decide(leave(browser), "1")
        refused = other.get(back)
        assert refused.status_code == 400 and "was not begun in this browser" in refused.text
        leave(other)
        assert other.get(back).status_code == 400
        kept = {name: value for name, value in browser.cookies.items() if name.endswith("-provider")}
        assert browser.get(back).status_code == 303
        replayed = dashboard.anonymous(Cookie="; ".join(f"{name}={value}" for name, value in kept.items()))
        assert replayed.get(back).status_code == 400
        forged = dashboard.anonymous(Cookie="; ".join(f"{name}={value}x" for name, value in kept.items()))
        assert forged.get(back).status_code == 400
        assert dashboard.anonymous().get("/login/callback?code=x&state=y").status_code == 400


def test_without_domains_and_groups_only_invited_people_get_in(tmp_path: Path, issuer: str) -> None:
    with lab(tmp_path / "data", issuer, email_domains=[]) as dashboard:
        refused, _ = sign_in(dashboard, "1")
        assert refused.status_code == 403 and "ask an admin for an invitation" in refused.text
        assert refused_names(dashboard) == ["ana@lab.example"]
        made = dashboard.http.post("/api/invitations", json={"email": "ana@lab.example", "role": "admin"}).json()
        secret = made["link"].rpartition("/")[2]
        page = dashboard.anonymous().get(f"/invite/{secret}").text
        assert "Sign in with Lab ID" in page and f"invitation={secret}" in page
        wrong, _ = sign_in(dashboard, "2", f"invitation={secret}")
        assert wrong.status_code == 403 and "The invitation is for ana@lab.example" in wrong.text
        entered, browser = sign_in(dashboard, "1", f"invitation={secret}")
        assert entered.status_code == 303
        assert browser.get("/api/me").json()["role"] == "admin"
        used, _ = sign_in(dashboard, "2", f"invitation={secret}")
        assert used.status_code == 410


def test_an_account_is_joined_by_its_address_and_a_removed_person_stays_out(tmp_path: Path, issuer: str) -> None:
    with lab(tmp_path / "data", issuer) as dashboard:
        person(dashboard.service, "ana", Role.ADMIN)
        _, browser = sign_in(dashboard, "1")
        me = browser.get("/api/me").json()
        assert (me["name"], me["role"], me["has_identity"]) == ("ana", "admin", True)
        assert dashboard.http.delete("/api/users/ana").status_code == 200
        assert browser.get("/api/me").status_code == 401
        refused, _ = sign_in(dashboard, "1")
        assert refused.status_code == 403 and "ask an admin for an invitation" in refused.text
        assert refused_names(dashboard) == ["ana@lab.example"]
        made = dashboard.http.post("/api/invitations", json={"email": "ana@lab.example"}).json()
        _, again = sign_in(dashboard, "1", f"invitation={made['link'].rpartition('/')[2]}")
        assert again.get("/api/me").json()["name"] == "ana2"


def test_who_made_an_account_for_anothers_address_does_not_share_it_with_them(tmp_path: Path, issuer: str) -> None:
    with lab(tmp_path / "data", issuer) as dashboard:
        made = dashboard.http.post("/api/invitations", json={"email": "ana@lab.example", "role": "member"}).json()
        mallory, entry = dashboard.anonymous(Origin=dashboard.url), {"name": "ana", "password": "correct horse"}
        assert mallory.post(made["link"].removeprefix(dashboard.url), data=entry).status_code == 303
        token = mallory.post("/api/tokens", json={"name": "kept", "scope": "admin"}).json()["token"]
        _, browser = sign_in(dashboard, "1")
        assert (browser.get("/api/me").json()["name"], browser.get("/api/me").json()["role"]) == ("ana", "member")
        assert browser.get("/api/tokens").json() == []
        assert mallory.get("/api/me").status_code == 401
        script = dashboard.anonymous(Authorization=f"Bearer {token}")
        wait_for(lambda: script.get("/api/me").status_code == 401, "the token to be refused")
        tried = dashboard.anonymous().post("/login", data={"person": "ana", "password": "correct horse"})
        assert tried.status_code == 401
        _, again = sign_in(dashboard, "1")
        assert again.get("/api/me").status_code == browser.get("/api/me").status_code == 200


def test_a_provider_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with lab(tmp_path / "data", "http://localhost:9") as dashboard:
        refused = dashboard.anonymous().get("/login/provider")
        assert refused.status_code == 502
        assert "Lab ID cannot be reached, or does not answer correctly." in refused.text


def test_github_says_who_somebody_is_by_its_own_api(tmp_path: Path) -> None:
    github = Flask("github")

    @github.get("/login/oauth/authorize")
    def authorize() -> Any:
        assert request.args["code_challenge"] and "user:email" in request.args["scope"]
        return redirect(f"{request.args['redirect_uri']}?code=c1&state={request.args['state']}")

    @github.post("/login/oauth/access_token")
    def token() -> Any:
        assert request.form["code"] == "c1" and request.form["code_verifier"]
        return jsonify(access_token="t1", token_type="bearer")

    @github.get("/api/v3/user", defaults={"path": ""})
    @github.get("/api/v3/user/<path:path>")
    def user(path: str) -> Any:
        assert request.headers["Authorization"] == "Bearer t1"
        emails = [{"email": "old@lab.example", "verified": True}]
        emails += [{"email": "ana@lab.example", "verified": True, "primary": True}]
        return jsonify({"": {"id": 42}, "emails": emails, "orgs": [{"login": "lab"}]}[path])

    server = make_server("localhost", 0, github, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        issuer = f"http://localhost:{server.server_port}"
        with lab(tmp_path / "data", issuer, oidc_github=True, oidc_groups=["lab"]) as dashboard:
            browser = dashboard.anonymous()
            back = httpx2.get(leave(browser), timeout=60).headers["location"]
            assert browser.get(back).status_code == 303
            assert browser.get("/api/me").json()["name"] == "ana"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_dashboard_without_a_provider_imports_nothing_that_speaks_with_one():
    program = "import sys, dashboard.app.server; print(*{'authlib', 'cryptography', 'joserfc'} & sys.modules.keys())"
    argv = [sys.executable, "-P", "-c", program]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split() == []


def test_provider_that_does_not_answer_holds_few_threads(tmp_path: Path) -> None:
    """It takes connections and says nothing: most who leave for it are told so at once."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as silent:
        issuer = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with lab(tmp_path, issuer) as dashboard, ThreadPoolExecutor(AT_ONCE + MOST_WAITING + 1) as pool:
            browser = dashboard.anonymous()
            crowd = [pool.submit(browser.get, "/login/provider") for _ in range(AT_ONCE + MOST_WAITING + 1)]
            first = next(as_completed(crowd)).result()
            assert first.status_code == 503 and first.headers["retry-after"] and "try again" in first.text
            assert dashboard.http.get("/api/runs").status_code == 200
            silent.close()


def test_known_address_goes_first_to_a_slow_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers who come later, from ever more addresses, do not take the place of somebody who signed in there."""
    monkeypatch.setattr(provider_sign_in, "AT_ONCE", 1)
    monkeypatch.setattr(provider_sign_in, "MOST_WAITING", 2)
    settings: dict[str, Any] = {"trusted_proxies": ["127.0.0.1"]}
    with slow_provider() as slow, ThreadPoolExecutor(12) as pool, lab(tmp_path, slow.issuer, **settings) as dashboard:
        dashboard.service.sessions.begin(person(dashboard.service, "ana", Role.MEMBER), "provider", HOME)

        def leave_from(address: str) -> Future[int]:
            browser = dashboard.anonymous(**{"X-Forwarded-For": address})
            return pool.submit(lambda: browser.get("/login/provider").status_code)

        strangers = [leave_from("203.0.113.1") for _ in range(4)]
        next(as_completed(strangers))
        home = leave_from(HOME)
        wait_for(lambda: sum(one.done() for one in [*strangers, home]) == 2, "the queue to be full")
        strangers += [leave_from(f"198.51.100.{number}") for number in range(4)]
        wait_for(lambda: sum(one.done() for one in [*strangers, home]) == 6, "the queue to be full again")
        slow.go.set()
        assert home.result() == 303
        assert sorted(one.result() for one in strangers) == [303, 303] + 6 * [503]


def test_whoever_leaves_a_slow_provider_leaves_its_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_sign_in, "AT_ONCE", 1)
    with slow_provider() as slow, ThreadPoolExecutor(2) as pool, lab(tmp_path / "data", slow.issuer) as dashboard:
        slow.go.set()
        people = [dashboard.anonymous() for _ in range(3)]
        states = [parse_qs(urlsplit(leave(browser)).query)["state"][0] for browser in people]
        slow.go.clear()
        paths = [f"/login/callback?code={number}&state={state}" for number, state in enumerate(states)]
        busy = pool.submit(people[0].get, paths[0])
        wait_for(lambda: slow.codes == ["0"], "the provider to be asked")
        with pytest.raises(httpx2.ReadTimeout):
            people[1].get(paths[1], timeout=1)
        late = pool.submit(people[2].get, paths[2])
        slow.go.set()
        assert (busy.result().status_code, late.result().status_code) == (403, 403)
        assert slow.codes == ["0", "2"]


HOME = "192.0.2.7"


class SlowProvider(NamedTuple):
    """A provider that answers once it is let go, and vouches for nobody."""

    issuer: str
    codes: list[str]
    """Those that it was asked about."""
    go: threading.Event


@contextmanager
def slow_provider() -> Iterator[SlowProvider]:
    app, codes, go = Flask("slow"), list[str](), threading.Event()

    @app.get("/.well-known/openid-configuration")
    def discover() -> Any:
        go.wait(LIMIT_S)
        issuer = request.host_url.rstrip("/")
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        return jsonify(issuer=issuer, **{name: f"{issuer}/{name}" for name in names})

    @app.post("/token_endpoint")
    def refuse() -> Any:
        codes.append(request.form["code"])
        go.wait(LIMIT_S)
        return jsonify(error="invalid_grant"), 400

    server = make_server("localhost", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield SlowProvider(f"http://localhost:{server.server_port}", codes, go)
    finally:
        go.set()
        server.shutdown()
        thread.join()
        server.server_close()

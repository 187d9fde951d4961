"""`rankzero login`: which dashboard a command asks, what is stored of a login, and what remains after logging out."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from torch.utils.tensorboard import SummaryWriter

from cli.commands.people import login
from cli.server.logins import Logins, plain_url
from domain.clients.logins import Login
from domain.people.rights import OWNER
from tests.cli.documents import document
from tests.dashboard.certificates import self_signed
from tests.dashboard.persons import browser_of
from tests.dashboard.running import Running, running


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("people") / "data") as it:
        yield it


@pytest.fixture
def person(dashboard: Running, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Somebody who is signed in and lets in whatever their browser shows; the addresses that it was sent to."""
    browser = browser_of(dashboard, OWNER)
    opened: list[str] = []

    def open_page(address: str) -> bool:
        opened.append(address)
        code = httpx2.URL(address).params["code"]
        assert code in browser.get(f"/device?code={code}").text
        assert browser.post("/device", data={"code": code, "answer": answers.pop(0)}).status_code == 200
        return True

    answers = ["allow"] * 3
    monkeypatch.setenv("BROWSER", "of the person")
    monkeypatch.setattr("cli.commands.people.login.webbrowser.open", open_page)
    monkeypatch.setattr(login, "machine_name", lambda: "laptop")
    monkeypatch.setattr("dashboard.api.tokens.POLL_S", 0.01)
    dashboard.service.device_logins._asked._tries.clear()
    return opened


def test_login_stores_a_token_that_only_this_user_can_read(rankzero, dashboard: Running, person: list[str]) -> None:
    code, out, err = rankzero("login", f"{dashboard.url}/nodes?x=1", "--scope", "launch", "--expires", "1h", "--json")
    assert (code, json.loads(out)) == (0, {"name": "owner", "role": "owner", "projects": {}}), err
    assert len(person) == 1 and person[0].startswith(f"{dashboard.url}/device?code=") and person[0][-9:] in err
    path = Logins().path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = json.loads(path.read_text())["logins"][dashboard.url]["token"]
    assert token.startswith("rz_") and token not in out + err
    assert document(rankzero("runs", "--json")) == []
    (listed,) = [one for one in document(rankzero("token", "list", "--json")) if one["name"] == "laptop"]
    assert (listed["scope"], listed["last_used_at"] is not None) == ("launch", True)
    assert "The token laptop may at most launch." in rankzero("whoami")[1]
    assert rankzero("logout")[0] == 0
    assert dashboard.anonymous(Authorization=f"Bearer {token}").get("/api/runs").status_code == 401
    assert token not in path.read_text()
    assert "This machine is not logged in" in rankzero("logout")[2]


def test_second_login_replaces_the_first_and_a_valid_one_is_kept(rankzero, dashboard: Running, person) -> None:
    assert rankzero("login", dashboard.url)[0] == 0
    assert "already" in rankzero("login")[1] and len(person) == 1
    assert rankzero("login", "--scope", "read")[0] == 0 and len(person) == 2
    names = [one["name"] for one in dashboard.http.get("/api/tokens").json()]
    assert names == ["laptop-2"]
    assert document(rankzero("whoami", "--json"))["name"] == "owner"
    assert rankzero("logout")[0] == 0 and dashboard.http.get("/api/tokens").json() == []


def test_login_for_a_mistyped_project_is_said(rankzero, dashboard: Running, person: list[str]) -> None:
    code, out, err = rankzero("login", dashboard.url, "--project", "visoin", "--json")
    assert code == 0 and json.loads(out)["name"] == "owner"
    assert err.endswith("No run is in project 'visoin': the token applies from its first run on.\n")
    assert rankzero("logout")[0] == 0


def test_refused_login_stores_nothing(rankzero, dashboard: Running, person, monkeypatch) -> None:
    def refuse(address: str) -> bool:
        code = httpx2.URL(address).params["code"]
        dashboard.http.post("/device", data={"code": code, "answer": "refuse"})
        return True

    monkeypatch.setattr("cli.commands.people.login.webbrowser.open", refuse)
    code, out, err = rankzero("login", dashboard.url)
    assert (code, out) == (1, "") and "The login was refused: nothing was stored." in err
    assert not Logins().path.exists()


def test_named_dashboards_come_before_the_login_and_it_before_the_local_one(
    rankzero, fake, dashboard: Running, tmp_path: Path, monkeypatch
) -> None:
    """`fake` is the one of RANKZERO_URL and RANKZERO_TOKEN; the data directory's is `dashboard`."""
    data = str(dashboard.service.settings.data)
    Logins().keep(Login("http://127.0.0.1:9", "rz_" + "a" * 43, "laptop", "ana"))
    assert document(rankzero("runs", "--json")) == fake.runs
    assert document(rankzero("runs", "--json", "--data", data)) == []
    monkeypatch.delenv("RANKZERO_URL")
    code, _, err = rankzero("runs")
    assert code == 1 and "No dashboard answers at http://127.0.0.1:9. It is that of your last `rankzero login`" in err
    monkeypatch.setenv("RANKZERO_DATA", data)
    assert document(rankzero("runs", "--json")) == []


def test_url_alone_uses_the_login_there(rankzero, fake, dashboard: Running, person, monkeypatch) -> None:
    monkeypatch.delenv("RANKZERO_TOKEN")
    code, _, err = rankzero("runs")
    assert code == 2 and f"RANKZERO_URL needs `rankzero login {fake.url}`" in err
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    assert rankzero("login")[0] == 0
    assert document(rankzero("runs", "--json")) == []
    assert rankzero("logout", dashboard.url)[0] == 0


def test_logout_of_a_dashboard_that_is_away_forgets_the_token_and_says_so(rankzero) -> None:
    Logins().keep(Login("http://127.0.0.1:9", "rz_" + "a" * 43, "laptop", "ana"))
    code, out, err = rankzero("logout", "--json")
    assert (code, json.loads(out)) == (0, {"name": "ana", "role": None, "projects": {}})
    assert "valid there until it is revoked or expires: laptop" in err
    assert Logins().current() is None


def test_ended_tokens_say_why_and_how_to_go_on(rankzero, dashboard: Running, monkeypatch) -> None:
    secret = dashboard.http.post("/api/tokens", json={"name": "short", "scope": "read"}).json()["token"]
    Logins().keep(Login(dashboard.url, secret, "short", "owner"))
    dashboard.http.delete("/api/tokens/short")
    code, _, err = rankzero("runs")
    assert code == 1 and err.count("\n") == 1 and "The token short was revoked at " in err
    assert "from `rankzero login`. The token short" in err and f"`rankzero login {dashboard.url}`" in err
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", secret)
    assert "from RANKZERO_TOKEN. The token short was revoked" in rankzero("runs")[2]


def test_tokens_are_made_listed_and_revoked(rankzero, dashboard: Running) -> None:
    at = ("--data", str(dashboard.service.settings.data))
    code, out, err = rankzero("token", "create", "ci", "--scope", "launch", "--project", "vision", *at)
    assert code == 0 and out.startswith("rz_")
    assert re.search(r"Valid until 20.* UTC: copy it now, it will not be shown again\.", err)
    made = document(rankzero("token", "create", "ever", "--scope", "read", "--expires", "never", "--json", *at))
    assert made["token"].startswith("rz_") and made["expires_at"] is None
    listed = document(rankzero("token", "list", "--json", *at))
    assert [(one["name"], one["scope"], one["project"]) for one in listed] == [
        ("ever", "read", None),
        ("ci", "launch", "vision"),
    ]
    assert "until revoked" in rankzero("token", "list", *at)[1]
    assert rankzero("token", "revoke", "ever", *at)[0] == 0
    code, _, err = rankzero("token", "revoke", "ever", *at)
    assert code == 1 and "There is no valid token 'ever'" in err
    rankzero("token", "revoke", "ci", *at)
    assert "There is no access token." in rankzero("token", "list", *at)[1]


def test_token_with_a_budget_shows_what_is_left_of_it(
    rankzero, dashboard: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ("--data", str(dashboard.service.settings.data))
    agent = ("token", "create", "agent", "--scope", "mcp", "--budget", "20h", "--devices", "2", "--longest", "2")
    secret = document(rankzero(*agent, "--expires", "7d", "--json", *at))["token"]
    (listed,) = document(rankzero("token", "list", "--json", *at))
    assert listed["budget"] == {
        "budget_s": 72_000.0, "most_devices": 2, "longest_s": 7_200.0, "used_s": 0.0, "devices": 0,
    }  # fmt: skip
    assert "20 of 20 h" in rankzero("token", "list", *at)[1]
    code, _, err = rankzero("token", "create", "other", "--scope", "mcp", "--devices", "2", *at)
    assert code == 2 and "add --budget" in err
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", secret)
    assert "may at most mcp. It has 20 of 20 device-hours left." in rankzero("whoami")[1]


def test_login_token_is_printed_as_before(rankzero, dashboard: Running) -> None:
    data = dashboard.service.settings.data
    assert rankzero("token", "--data", str(data)) == (0, dashboard.token + "\n", "")
    assert document(rankzero("token", "--join", "--json", "--data", str(data))) == {"token": dashboard.join_token}
    assert rankzero("token", "--metrics", "--data", str(data))[0] == 0


@pytest.mark.parametrize("text", ["gpu-1:8765", "ftp://gpu-1", "", "http://"])
def test_login_needs_a_whole_address(rankzero, text: str) -> None:
    assert rankzero("login", text)[0] == 2


def test_pasted_addresses_lose_token_and_page() -> None:
    assert plain_url("https://ana@gpu-1:8765/run?id=a&token=x#y") == "https://gpu-1:8765"


def test_damaged_logins_are_named(rankzero) -> None:
    Logins().path.parent.mkdir(parents=True)
    Logins().path.write_text("{")
    code, _, err = rankzero("runs")
    assert code == 1 and str(Logins().path) in err and "delete it" in err


@pytest.mark.parametrize(
    ("environment", "is_there"),
    [
        ({}, False),
        ({"DISPLAY": ":0"}, True),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "x"}, False),
        ({"BROWSER": "x"}, True),
    ],
)
def test_browsers_open_only_where_a_window_can(monkeypatch, environment: dict[str, str], is_there: bool) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("cli.commands.people.login.sys.platform", "linux")
    assert login.has_browser() is is_there


def test_commands_that_need_more_than_the_scope_do_nothing_and_say_one_sentence(
    rankzero, dashboard: Running, tmp_path: Path
) -> None:
    secret = dashboard.http.post("/api/tokens", json={"name": "ci", "scope": "launch"}).json()["token"]
    Logins().keep(Login(dashboard.url, secret, "ci", "owner"))
    with SummaryWriter(str(tmp_path / "past")) as writer:
        writer.add_scalar("loss", 1.0, 1)
    for command in (("import", str(tmp_path / "past")), ("token", "create", "x", "--scope", "read"), ("drain", "n0")):
        code, out, err = rankzero(*command)
        assert (code, out, err.count("\n")) == (1, "", 1), err
        assert "The scope of token ci is launch: " in err
    assert dashboard.http.get("/api/runs").json() == []
    dashboard.http.delete("/api/tokens/ci")


def test_login_trusts_the_same_certificate_later(rankzero, tmp_path: Path, monkeypatch) -> None:
    pair = self_signed(tmp_path)
    with running(tmp_path / "data", on_port=True, tls_cert=pair.certificate, tls_key=pair.key) as secured:

        def allow(address: str) -> bool:
            answer = {"code": httpx2.URL(address).params["code"], "answer": "allow"}
            return secured.http.post("/device", data=answer).status_code == 200

        monkeypatch.setenv("BROWSER", "of the person")
        monkeypatch.setattr("cli.commands.people.login.webbrowser.open", allow)
        assert rankzero("login", secured.url)[0] == 1
        monkeypatch.setenv("RANKZERO_CA_FILE", str(pair.certificate))
        code, _, err = rankzero("login", secured.url)
        assert code == 0, err
        monkeypatch.delenv("RANKZERO_CA_FILE")
        assert document(rankzero("runs", "--json")) == []

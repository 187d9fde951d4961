"""`rankzero users`: an admin invites, lists, gives roles and removes, from the command line alone."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.server.logins import Logins
from db import acting
from domain.clients.logins import Login
from domain.people.roles import Role, Scope
from domain.people.tokens import TokenWanted
from tests.cli.documents import document
from tests.dashboard.persons import person
from tests.dashboard.running import Running, running


@pytest.fixture
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("people") / "data") as it:
        yield it


def log_in(dashboard: Running, name: str, scope: str = "admin") -> None:
    """What `rankzero login` leaves behind for this person."""
    rights = dashboard.service.identities.rights(name)
    assert rights is not None
    with acting.acting(rights):
        _, secret = dashboard.service.access_tokens.make(TokenWanted(f"{name}-{scope}", Scope(scope)))
    Logins().keep(Login(dashboard.url, secret, f"{name}-{scope}", name))


def by_name(rankzero: Any) -> dict[str, Any]:
    return {one["name"]: one for one in document(rankzero("users", "list", "--json"))}


def test_admin_invites_gives_roles_and_removes(rankzero, dashboard: Running) -> None:
    person(dashboard.service, "ada", Role.ADMIN)
    person(dashboard.service, "ben", Role.VIEWER)
    log_in(dashboard, "ada")
    invitation = document(rankzero("users", "invite", "cleo@lab.example", "--role", "member", "--json"))
    assert invitation["link"].startswith(f"{dashboard.url}/invite/") and invitation["expires_at"] > 0
    code, out, err = rankzero("users", "invite", "dan@lab.example", "--project", "vision")
    assert "Valid for 7 d: copy it now, it will not be shown again" in err
    soon = document(rankzero("users", "invite", "eva@lab.example", "--expires", "2h", "--json"))
    assert soon["expires_at"] < invitation["expires_at"] - 6 * 86_400
    assert rankzero("users", "invite", "eva@lab.example", "--expires", "soon")[0] == 2
    assert code == 0 and out.startswith(f"{dashboard.url}/invite/") and out.count("\n") == 1
    assert "copy it now, it will not be shown again. Send it to dan@lab.example, who becomes a viewer of" in err
    code, out, err = rankzero("users", "invite", "ben@lab.example")
    assert code == 0 and "Send it to ben@lab.example, who sets a new password as ben." in err
    assert (
        "ben is a member of project vision now." in rankzero("users", "role", "ben", "member", "--project", "vision")[1]
    )
    assert by_name(rankzero)["ben"]["projects"] == {"vision": "member"}
    assert document(rankzero("users", "role", "ben", "none", "--yes", "--json"))["role"] is None
    listed = rankzero("users", "list")[1]
    assert "member of vision" in listed and "ben@lab.example" in listed
    code, out, err = rankzero("users", "remove", "ben")
    assert (code, out) == (2, "") and "add --yes" in err
    assert rankzero("users", "remove", "ben", "--yes")[0] == 0
    assert by_name(rankzero).keys() == {"owner", "ada"}


def test_project_that_nothing_names_is_said_beside_the_outcome(rankzero, dashboard: Running) -> None:
    person(dashboard.service, "ada", Role.ADMIN)
    person(dashboard.service, "ben", Role.VIEWER, vision=Role.VIEWER, speech=Role.VIEWER)
    log_in(dashboard, "ada")
    sentence = "No run is in project {!r} (did you mean {}?): the role applies from its first run on.\n".format
    given = rankzero("users", "role", "ben", "member", "--project", "visoin")
    assert given == (0, "ben is a member of project visoin now.\n", sentence("visoin", "vision"))
    code, out, err = rankzero("users", "role", "ben", "member", "--project", "speach", "--json")
    assert (code, err) == (0, sentence("speach", "speech")) and json.loads(out)["projects"]["speach"] == "member"
    assert rankzero("users", "role", "ben", "member", "--project", "vision")[2] == ""
    code, out, err = rankzero("users", "invite", "dan@lab.example", "--project", "visiom", "--json")
    assert code == 0 and "No run is in project 'visiom' (did you mean " in err and json.loads(out)["link"]
    code, out, err = rankzero("users", "invite", "dan@lab.example", "--project", "wision")
    assert code == 0 and out.count("\n") == 1 and "No run is in project 'wision'" in err.splitlines()[-1]


def test_project_of_a_token_or_secret_that_nothing_names_is_said(
    rankzero, dashboard: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    person(dashboard.service, "ada", Role.ADMIN, vision=Role.ADMIN, speech=Role.ADMIN)
    log_in(dashboard, "ada")
    sentence = "No run is in project {!r} (did you mean {}?): the {} applies from its first run on.\n".format
    made = rankzero("token", "create", "ci", "--scope", "read", "--project", "visoin", "--json")
    assert (made[0], made[2]) == (0, sentence("visoin", "vision", "token")) and json.loads(made[1])["token"]
    assert "No run" not in rankzero("token", "create", "own", "--scope", "read", "--project", "vision")[2]
    for doubted in ("warning: " + sentence("speach", "speech", "secret"), ""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a value of many words")))
        assert rankzero("secret", "set", "HF_TOKEN", "--project", "speach")[::2] == (0, doubted)


def test_others_are_refused_with_a_sentence(rankzero, dashboard: Running) -> None:
    person(dashboard.service, "ben", Role.MEMBER)
    person(dashboard.service, "ada", Role.ADMIN)
    for name, scope, word in (
        ("ben", "admin", "You are a member"),
        ("ada", "act", "The scope of token ada-act is act"),
    ):
        log_in(dashboard, name, scope)
        for command in (("role", "ben", "admin"), ("invite", "x@lab.example"), ("remove", "owner", "--yes")):
            code, out, err = rankzero("users", *command)
            assert (code, out, err.count("\n")) == (1, "", 1), err
            assert word in err
    assert dashboard.http.get("/api/users/ben").json()["role"] == "member"


def test_removed_person_is_logged_out_everywhere(rankzero, dashboard: Running) -> None:
    person(dashboard.service, "ben", Role.MEMBER)
    log_in(dashboard, "ben")
    assert document(rankzero("whoami", "--json")) == {"name": "ben", "role": "member", "projects": {}}
    data = ("--data", str(dashboard.service.settings.data))
    assert rankzero("users", "remove", "ben", "--yes", *data)[0] == 0
    code, _, err = rankzero("runs")
    assert code == 1 and "ben, who owns this token, no longer has an account here." in err


def test_unknown_persons_and_roles_are_named(rankzero, dashboard: Running) -> None:
    data = ("--data", str(dashboard.service.settings.data))
    code, _, err = rankzero("users", "role", "nobody", "viewer", *data)
    assert code == 1 and "nobody" in err
    assert rankzero("users", "role", "owner", "owner", *data)[0] == 2


def test_launch_of_a_script_is_refused_with_a_sentence(rankzero, dashboard: Running, tmp_path: Path) -> None:
    person(dashboard.service, "ben", Role.MEMBER)
    person(dashboard.service, "eve", Role.VIEWER)
    (tmp_path / "train.py").write_text("print(1)\n")
    for name, scope, words in (
        ("ben", "read", "The scope of token ben-read is read"),
        ("eve", "admin", "You are a viewer"),
    ):
        log_in(dashboard, name, scope)
        code, out, err = rankzero("launch", str(tmp_path / "train.py"), "--gpus-per-node", "1")
        assert (code, out) == (1, "") and err.startswith(words), err


def run_of_ben_seen_by_ada(rankzero, dashboard: Running) -> str:
    """Launch a run as the member ben, then log in as the admin ada; returns its id."""
    person(dashboard.service, "ada", Role.ADMIN)
    person(dashboard.service, "ben", Role.MEMBER)
    dashboard.node()
    log_in(dashboard, "ben", "act")
    run_id: str = document(rankzero("launch", "image_classifier", "--gpus-per-node", "1", "--json"))["id"]
    log_in(dashboard, "ada")
    return run_id


def test_removing_says_what_ends_and_does_with_live_runs_as_told(rankzero, dashboard: Running) -> None:
    run = run_of_ben_seen_by_ada(rankzero, dashboard)
    code, out, err = rankzero("users", "remove", "ben")
    assert (code, out) == (2, "") and "ben has 1 live run. 1 access token ends with the account." in err
    code, out, err = rankzero("users", "remove", "ben", "--runs", "sell", "--yes")
    assert code == 2 and "runs must be keep, stop or give:NAME, got 'sell'." in err
    removed = document(rankzero("users", "remove", "ben", "--runs", "give:ada", "--yes", "--json"))
    assert removed == {"name": "ben", "given": 1}
    assert dashboard.run(run)["by"] == "ada"


def test_lower_role_says_what_it_takes(rankzero, dashboard: Running) -> None:
    person(dashboard.service, "ada", Role.ADMIN)
    person(dashboard.service, "ben", Role.MEMBER)
    log_in(dashboard, "ada")
    sentence = "ben is now a member of all projects that are not private, and would be a viewer.\n"
    assert rankzero("users", "role", "ben", "viewer")[::2] == (0, sentence)
    assert rankzero("users", "role", "ben", "member")[2] == ""


def test_whose_run_is_stopped_is_told_why(rankzero, dashboard: Running) -> None:
    run = run_of_ben_seen_by_ada(rankzero, dashboard)
    assert rankzero("stop", run, "--reason", "needed for the demo")[0] == 0
    assert dashboard.run(run)["message"] == "Stopped by ada: needed for the demo"
    code, _, err = rankzero("stop", run, "--reason", "x" * 400)
    assert code == 2 and "reason must be one line of at most 300 characters." in err


def test_token_of_another_is_revoked_only_on_purpose(rankzero, dashboard: Running) -> None:
    person(dashboard.service, "ada", Role.ADMIN)
    person(dashboard.service, "ben", Role.MEMBER)
    log_in(dashboard, "ben", "act")
    log_in(dashboard, "ada")
    code, out, err = rankzero("token", "revoke", "ben-act", "--user", "ben")
    assert (code, out) == (2, "") and "cannot be undone; add --yes" in err
    assert rankzero("token", "revoke", "ben-act", "--user", "ben", "--yes")[0] == 0

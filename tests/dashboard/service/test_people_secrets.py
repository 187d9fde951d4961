"""Secrets of people and projects: encrypted in the store, given to the runs that name them, never shown."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from dashboard.security.keys.secret_key import SecretsUnreadable
from db import acting
from db.models import User
from db.people import audit, removal
from db.people.audit import AuditFilter
from db.people.stored_secrets import NoSuchSecret
from domain.people.rights import Denied, Rights
from domain.people.roles import Role, Scope
from domain.requests.errors import InvalidRequest
from domain.spec import RunSpec
from tests.dashboard.persons import person
from tests.dashboard.running import FakeNode, Running, running, wait_for

TOKEN = "hf_AbCdEfGhIjKlMn"
OTHER = "hf_OtHeRoThErOtHeR"
ANA = Rights("ana", in_projects={"vision": Role.ADMIN})
BEN = Rights("ben", in_projects={"vision": Role.MEMBER, "text": Role.VIEWER})


def put(dashboard: Running, name: str = "HF_TOKEN", value: object = TOKEN, **more: object) -> int:
    answer = dashboard.http.put(f"/api/secrets/{name}", json={"value": value, **more})
    assert TOKEN not in answer.text
    return answer.status_code


def refused(dashboard: Running, **spec: object) -> str:
    answer = dashboard.http.post("/api/runs", json={"target": "image_classifier", "gpus_per_node": 1, **spec})
    assert answer.status_code == 422 and TOKEN not in answer.text
    return str(answer.json()["detail"]["message"])


def everything_of(data: Path) -> bytes:
    contents = []
    for path in data.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):  # the dashboard replaces files meanwhile
            contents.append(path.read_bytes())
    return b"".join(contents)


def test_a_run_gets_what_it_names_and_nothing_else_has_it(dashboard: Running, node: FakeNode) -> None:
    assert put(dashboard) == 200 and put(dashboard, "DB_PASSWORD", OTHER) == 200
    run_id = dashboard.launch(secrets=["HF_TOKEN"])
    assignment = node.assignment()
    assert assignment.secrets == {"HF_TOKEN": TOKEN}
    assert TOKEN not in assignment.model_dump_json() and TOKEN not in repr(assignment)
    assert dashboard.run(run_id)["spec"]["secrets"] == ["HF_TOKEN"]
    (listed,) = [one for one in dashboard.http.get("/api/secrets").json() if one["name"] == "HF_TOKEN"]
    assert listed.keys() == {"name", "user", "project", "by", "set_at"} and listed["user"] == "owner"
    data = dashboard.service.settings.data
    assert TOKEN.encode() not in everything_of(data)
    assert (data / "secret-key").stat().st_mode & 0o777 == 0o600
    key = (data / "secret-key").read_text().strip()
    dashboard.service.store.backup(copy := data / "copy.db")
    assert key.encode() not in copy.read_bytes()


def test_each_use_is_in_the_audit_log_by_its_name(dashboard: Running, node: FakeNode) -> None:
    put(dashboard)
    run_id = dashboard.launch(secrets=["HF_TOKEN"])
    node.assignment()
    node.assignment()
    dashboard.http.delete("/api/secrets/HF_TOKEN")
    entries = [entry for entry in audit.entries(dashboard.service.store, AuditFilter(), 20) if "secret" in entry.object]
    assert [(entry.action, entry.object, entry.by, entry.via) for entry in entries] == [
        ("secret-removed", "secret HF_TOKEN of owner", "owner", None),
        ("secret-given", "secret HF_TOKEN of owner", "owner", f"run {run_id}"),
        ("secret-set", "secret HF_TOKEN of owner", "owner", None),
    ]
    assert all(TOKEN not in entry.model_dump_json() for entry in entries)


def test_the_preview_shows_its_name_alone(dashboard: Running) -> None:
    put(dashboard)
    answer = dashboard.http.post("/api/preview", json={"target": "image_classifier", "secrets": ["HF_TOKEN"]})
    assert answer.json()["commands"][0]["env"]["HF_TOKEN"] == "********"


def test_a_launch_that_would_not_get_its_secret_is_refused(dashboard: Running) -> None:
    assert "there is no secret HF_TOKEN, neither yours nor of project default" in refused(
        dashboard, secrets=["HF_TOKEN"]
    )
    put(dashboard)
    assert "env and secrets both name HF_TOKEN" in refused(dashboard, secrets=["HF_TOKEN"], env={"HF_TOKEN": "x"})
    for field, content in (("args", ["--token", f"x{TOKEN}"]), ("env", {"OTHER": TOKEN}), ("name", f"uses {TOKEN}")):
        assert f"{field}: it contains the value" in refused(dashboard, secrets=["HF_TOKEN"], **{field: content})


@pytest.mark.parametrize(("name", "value"), [("HF_TOKEN", "short"), ("RANKZERO_X", TOKEN), ("a b", TOKEN)])
def test_what_cannot_be_a_secret_is_refused(dashboard: Running, name: str, value: str) -> None:
    assert put(dashboard, name, value) == 422
    assert dashboard.http.get("/api/secrets").json() == []


def test_a_wrong_value_is_not_repeated(dashboard: Running) -> None:
    answer = dashboard.http.put("/api/secrets/HF_TOKEN", json={"value": 81_818_181})
    assert answer.status_code == 422 and "81818181" not in answer.text


def test_an_attempt_keeps_the_value_it_began_with(dashboard: Running, node: FakeNode) -> None:
    put(dashboard)
    dashboard.launch(secrets=["HF_TOKEN"])
    task = node.task()
    put(dashboard, value=OTHER)
    assert node.assignment().secrets == {"HF_TOKEN": TOKEN}
    dashboard.http.delete("/api/secrets/HF_TOKEN")
    assert node.assignment().secrets == {"HF_TOKEN": TOKEN}
    node.report(task, "succeeded", exit_code=0)
    put(dashboard, value=OTHER)
    dashboard.launch(secrets=["HF_TOKEN"])
    assert node.assignment().secrets == {"HF_TOKEN": OTHER}


def test_a_run_whose_secret_was_removed_says_so(dashboard: Running, node: FakeNode) -> None:
    put(dashboard)
    run_id = dashboard.launch(secrets=["HF_TOKEN"])
    node.report(node.task(), "failed", reason="script error", message="it broke")
    dashboard.http.delete("/api/secrets/HF_TOKEN")
    dashboard.http.post(f"/api/runs/{run_id}/resume", json={})
    assignment = node.assignment()
    assert assignment.secrets == {}
    assert str(assignment.secrets_problem).startswith("There is no secret HF_TOKEN, neither of owner nor of project")


def test_each_gets_their_own_before_the_projects(dashboard: Running, node: FakeNode) -> None:
    service = dashboard.service
    person(service, "ben", vision=Role.MEMBER)
    with acting.acting(ANA):
        service.secrets.set("HF_TOKEN", OTHER, "vision")
    with acting.acting(BEN):
        names = [(secret.name, secret.user, secret.project) for secret in service.secrets.every()]
        assert names == [("HF_TOKEN", None, "vision")]
        service.launch(RunSpec(target="image_classifier", project="vision", gpus_per_node=1, secrets=["HF_TOKEN"]))
        assert node.assignment().secrets == {"HF_TOKEN": OTHER}
        node.report(node.task(), "failed", reason="script error", message="it broke")
        service.secrets.set("HF_TOKEN", TOKEN)
        service.launch(RunSpec(target="image_classifier", project="vision", gpus_per_node=1, secrets=["HF_TOKEN"]))
    assert node.assignment().secrets == {"HF_TOKEN": TOKEN}
    with acting.acting(ANA):
        assert {secret.user for secret in service.secrets.every()} == {None}


def test_who_may_not_launch_in_a_project_any_more_gets_none_of_its_secrets(dashboard: Running, node: FakeNode) -> None:
    service, member = dashboard.service, {"role": "member", "project": "vision"}
    person(service, "ben", vision=Role.MEMBER)
    assert put(dashboard, project="vision") == 200
    with acting.acting(BEN):
        spec = RunSpec(target="image_classifier", project="vision", gpus_per_node=1, secrets=["HF_TOKEN"])
        run_id = service.launch(spec.model_copy(update={"max_restarts": 1}))
    assert node.assignment().secrets == {"HF_TOKEN": TOKEN}
    dashboard.http.patch("/api/users/ben", json=member | {"role": "viewer"}).raise_for_status()
    put(dashboard, value=OTHER, project="vision")
    node.report(node.task(), "failed", reason="script error", message="it broke")
    wait_for(lambda: any(one.attempt == 2 for one in node.client.desired_state(None, 0).assignments), "the restart")
    assignment = node.assignment()
    assert assignment.secrets == {} and "may no longer launch" in str(assignment.secrets_problem)
    node.report(node.task(), "failed", reason="launch failed", message=assignment.secrets_problem)
    dashboard.http.post(f"/api/runs/{run_id}/resume", json={}).raise_for_status()
    assert node.assignment().secrets == {"HF_TOKEN": OTHER}, "the owner has decided it"


def test_a_preview_does_not_tell_what_a_hidden_project_has(dashboard: Running) -> None:
    service = dashboard.service
    with acting.acting(ANA):
        service.secrets.set("HF_TOKEN", TOKEN, "vision")
    stranger = Rights("eve", everywhere=Role.MEMBER, private=frozenset({"vision"}))
    spec = RunSpec(target="image_classifier", project="vision", secrets=["HF_TOKEN"])
    with acting.acting(stranger), pytest.raises(InvalidRequest, match="there is no secret"):
        service.secrets.check_spec(spec)


def test_who_may_not_change_a_secret_is_told_why(dashboard: Running) -> None:
    secrets = dashboard.service.secrets

    def denied(rights: Rights, act: Callable[[], object]) -> str:
        with acting.acting(rights), pytest.raises(Denied) as raised:
            act()
        return str(raised.value)

    assert "only admins can" in denied(BEN, lambda: secrets.set("HF_TOKEN", TOKEN, "vision"))
    assert "only admins can" in denied(BEN, lambda: secrets.remove("HF_TOKEN", "vision"))
    script = Rights("ana", everywhere=Role.ADMIN, scope=Scope.LAUNCH, via="token ci")
    assert "scope of token ci is launch" in denied(script, lambda: secrets.set("HF_TOKEN", TOKEN))
    bound = Rights("ana", everywhere=Role.ADMIN, only_project="vision")
    assert "project vision alone" in denied(bound, lambda: secrets.set("HF_TOKEN", TOKEN))
    with acting.acting(BEN), pytest.raises(NoSuchSecret):
        secrets.remove("HF_TOKEN")


def test_whoever_may_launch_no_more_gets_no_secret_of_another_person(dashboard: Running, node: FakeNode) -> None:
    ben = person(dashboard.service, "ben", None, vision=Role.MEMBER)
    assert put(dashboard, value=OTHER) == 200, "of the owner alone"
    assert put(dashboard, project="vision") == 200
    with acting.acting(dashboard.service.identities.person(ben)):
        dashboard.service.launch(
            RunSpec(target="image_classifier", gpus_per_node=1, project="vision", secrets=["HF_TOKEN"])
        )
    assert dashboard.http.patch("/api/users/ben", json={"role": None, "project": "vision"}).status_code == 200
    assignment = node.assignment()
    assert not assignment.secrets and "may no longer launch" in str(assignment.secrets_problem)


def test_a_run_of_a_projects_token_gets_the_projects_secret_instead_of_its_persons(
    dashboard: Running, node: FakeNode
) -> None:
    assert put(dashboard, value=OTHER) == 200
    assert put(dashboard, project="vision") == 200
    made = dashboard.http.post("/api/tokens", json={"name": "ci", "scope": "launch", "project": "vision"})
    body = {"target": "image_classifier", "gpus_per_node": 1, "project": "vision", "secrets": ["HF_TOKEN"]}
    http = dashboard.anonymous(Authorization=f"Bearer {made.json()['token']}")
    assert http.post("/api/runs", json=body).status_code == 201
    assert node.assignment().secrets == {"HF_TOKEN": TOKEN}


def test_the_secrets_of_a_removed_person_are_gone(dashboard: Running) -> None:
    service = dashboard.service
    with service.store.write() as session:
        session.add(User(name="ben", created_at=1.0))
    with acting.acting(BEN):
        service.secrets.set("HF_TOKEN", TOKEN)
    removal.remove(service.store, "ben", 2.0)
    with acting.acting(BEN):
        assert service.secrets.every() == []


def test_a_lost_or_another_key_is_said_in_a_sentence(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as dashboard:
        put(dashboard)
        key = (data / "secret-key").read_text()
        (data / "secret-key").unlink()
        assert put(dashboard, value=OTHER) == 409
        node = dashboard.node()
        (data / "secret-key").write_text(key)
        dashboard.launch(secrets=["HF_TOKEN"])
        (data / "secret-key").write_text(key.replace(key[0], "x" if key[0] != "x" else "y"))
        assert "is not the one with which secrets" in str(node.assignment().secrets_problem)
        (data / "secret-key").unlink()
        assert "is lost" in str(node.assignment().secrets_problem)
        with pytest.raises(SecretsUnreadable, match="put a copy of the file back"):
            dashboard.service.secrets.set("HF_TOKEN", TOKEN)
        (data / "secret-key").write_text("short")
        assert "is damaged in" in str(node.assignment().secrets_problem)
        (data / "secret-key").write_text("0123456789abcdef0123456789abcdef")
        dashboard.service.secrets.set("HF_TOKEN", OTHER)
        assert node.assignment().secrets == {"HF_TOKEN": OTHER}


def test_dashboards_share_the_key_that_they_are_told(tmp_path: Path) -> None:
    with running(tmp_path / "data", secret_key_file=tmp_path / "key") as dashboard:
        put(dashboard)
        assert (tmp_path / "key").exists() and not (tmp_path / "data/secret-key").exists()

"""What a person with some rights must not turn into more: the machine's files, others' values, links to passwords."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dashboard.snapshots.archive import Archive, pack
from dashboard.snapshots.selection import select
from dashboard.studies.sweep_request import launch_best_with_seeds
from dashboard.views.launch import code
from db import acting
from db.alerts import alerts, events
from db.studies import studies
from domain.alerts.judgement import RunEvent
from domain.people.rights import Denied
from domain.people.roles import Role
from domain.requests.errors import InvalidRequest
from domain.spec import RunSpec
from domain.sweeps import SweepPlan
from tests.dashboard.persons import browser_of, person
from tests.dashboard.running import Running, wait_for
from tests.dashboard.security.lab import OPEN, PEOPLE, SECRET, Lab, Person, Things

MIA, MAX, ADA = PEOPLE["member, whose the objects are"], PEOPLE["another member"], PEOPLE["base admin"]
OWNER, VERA = PEOPLE["owner"], PEOPLE["viewer of the private project"]
OTHERS = ["member, whose the objects are", "base admin", "token to launch", "token of the owner for the open project"]
SCRIPT = "import argparse\nargparse.ArgumentParser().add_argument('--rate', type=float)\n"


@pytest.fixture
def lab(dashboard: Running) -> Lab:
    return Lab(dashboard)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody on this machine may read; tmp_path is private."""
    folder = Path(tempfile.mkdtemp(prefix="rankzero-public-"))
    folder.chmod(0o755)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "train.py").chmod(0o644)
    yield folder
    shutil.rmtree(folder)


def launch(lab: Lab, who: Person, like: str = "", **spec: Any) -> httpx2.Response:
    wanted = {"target": "image_classifier", "gpus_per_node": 1, "project": OPEN} | spec
    query = f"?like={like}" if like else ""
    return lab.dashboard.http.post(f"/api/runs{query}", json=wanted, headers=lab.headers(who))


@pytest.mark.parametrize("who", OTHERS)
def test_launching_reads_no_file_of_the_dashboards_machine_that_is_not_for_everybody(lab: Lab, who: str) -> None:
    data, headers = lab.service.settings.data, lab.headers(PEOPLE[who])

    def refusals(target: Path, **more: str) -> tuple[str, str]:
        launched = launch(lab, PEOPLE[who], target=str(target), **more)
        read = lab.dashboard.http.get("/api/script", params={"target": str(target), **more}, headers=headers)
        assert (launched.status_code, read.status_code) == (422, 422), (launched.text, read.text)
        return launched.text.replace(str(target), "PATH"), read.text.replace(str(target), "PATH")

    folder = refusals(data, entry="token")
    assert "or not everybody there may read it" in folder[0]
    assert refusals(data / "token") == refusals(data / "missing"), "whether a private file exists is not told"
    assert folder[0] == refusals(data / "nothing", entry="token")[0]


def test_the_owner_launches_what_the_dashboard_reads(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    assert launch(lab, OWNER, target=str(tmp_path / "train.py")).status_code == 201
    assert lab.dashboard.launch(target=str(tmp_path / "train.py"))
    for_reading = PEOPLE["token of the owner to read"]
    assert launch(lab, for_reading, target=str(tmp_path / "train.py")).status_code == 403


def test_members_launch_what_everybody_may_read_and_nothing_beside_it(lab: Lab, public: Path) -> None:
    (public / "notes.txt").write_text("of its owner alone")
    (public / "notes.txt").chmod(0o600)
    (public / "inner").mkdir(mode=0o700)
    (public / "inner" / "key.py").write_text("KEY = 1")
    (public / "inner" / "key.py").chmod(0o644)
    launched = launch(lab, MIA, target=str(public), entry="train.py")
    assert launched.status_code == 201, launched.text
    spec = lab.dashboard.run(launched.json()["id"])["spec"]
    assert set(lab.service.snapshots.archive(spec["snapshot"]).files()) == {"train.py"}
    snapshot = lab.dashboard.http.get(f"/api/snapshots/{spec['snapshot']}").json()
    assert {(one["name"], one["why"]) for one in snapshot["origin"]["left_out"]} == {
        ("notes.txt", "unreadable"),
        ("inner/", "unreadable"),
    }
    refused = launch(lab, MIA, target=str(public), entry="inner/key.py")
    assert refused.status_code == 422 and "or not everybody there may read it" in refused.text


def test_a_file_that_becomes_private_after_it_was_chosen_is_not_packed(public: Path, tmp_path: Path) -> None:
    (public / "other.py").write_text("public")
    (public / "other.py").chmod(0o644)
    chosen = select(public).public_part()
    (tmp_path / "other.py").write_text("secret")
    (tmp_path / "other.py").chmod(0o600)
    (public / "other.py").unlink()
    (public / "other.py").symlink_to(tmp_path / "other.py")
    packed = pack(chosen, tmp_path / "archive", 1_000_000)
    assert set(Archive(packed.path).files()) == {"train.py"}


def test_only_the_owner_has_the_dashboard_start_a_python_to_freeze_it(lab: Lab, public: Path) -> None:
    started = public / "started"
    python = public / "python"
    python.write_text(f"#!/bin/sh\ntouch {started}\n")
    python.chmod(0o755)
    spec = RunSpec(target=str(public / "train.py"), python=str(python), project=OPEN)
    assert code.frozen_python(spec) == python
    rights = lab.service.identities.rights("mia")
    assert rights is not None
    with acting.acting(rights):
        code.freeze_button(spec, "")
    assert not started.exists() and not (public / "requirements.txt").exists()


# Values in the settings of somebody else's run.

VALUES = {"WANDB_API_KEY": "the-value-of-mia"}


def test_values_of_a_run_go_into_no_other_program_of_another_person(lab: Lab) -> None:
    run = launch(lab, MIA, env=VALUES).json()["id"]
    masked = lab.dashboard.run(run)["spec"]["env"]
    assert masked == {"WANDB_API_KEY": "********"}
    for who in (ADA, MAX):
        refused = launch(lab, who, like=run, env=masked, args=["--data", "elsewhere"])
        assert refused.status_code == 422 and "placeholder of a hidden value" in refused.text
    for who in (MIA, OWNER):
        assert launch(lab, who, like=run, env=masked).status_code == 201


def test_the_best_of_a_sweep_is_launched_again_without_the_values_of_its_person(lab: Lab) -> None:
    plan = SweepPlan.model_validate({"parameters": {"lr": {"values": [0.1]}}, "metric": "loss"})
    spec = RunSpec(target="image_classifier", gpus_per_node=1, project=OPEN, env=VALUES)
    with as_person(lab, "mia"):
        sweep_id = studies.create(lab.service.store, spec, plan, lab.service.clock())
    wait_for(lambda: studies.study(lab.service.store, sweep_id, SweepPlan).trials, "the dashboard to launch the trial")
    with as_person(lab, "mia"):
        sweep = studies.study(lab.service.store, sweep_id, SweepPlan)
        assert len(launch_best_with_seeds(lab.service, sweep, sweep.trials[0])) == 3
    with as_person(lab, "max"), pytest.raises(InvalidRequest, match="placeholder of a hidden value"):
        launch_best_with_seeds(lab.service, sweep, sweep.trials[0])


def as_person(lab: Lab, name: str, project: str = OPEN) -> Any:
    return lab.acting(Things(project, name))


# Links that make accounts or set passwords.


def invited(lab: Lab, browser: httpx2.Client, email: str, **more: str) -> str:
    answer = browser.post("/api/invitations", json={"email": email, **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["link"].removeprefix(lab.dashboard.url))


def test_nobody_lets_themselves_in_again_with_a_link_they_made_before(lab: Lab) -> None:
    dashboard, owner = lab.dashboard, lab.dashboard.http
    eve = browser_of(dashboard, person(lab.service, "eve", Role.ADMIN, elsewhere=Role.ADMIN))
    everywhere = invited(lab, eve, "eve2@lab.example", role="admin")
    of_project = invited(lab, eve, "eve3@lab.example", role="admin", project="elsewhere")
    visitor = dashboard.anonymous()
    assert [visitor.get(link).status_code for link in (everywhere, of_project)] == [200, 200]
    assert owner.patch("/api/users/eve", json={"role": "member"}).status_code == 200
    late = visitor.post(everywhere, data={"name": "eve2", "password": "correct horse"})
    assert late.status_code == 410 and "may no longer do so" in late.text
    assert visitor.get(of_project).status_code == 200, "an admin of that project she still is"
    assert owner.delete("/api/users/eve").status_code == 200
    assert visitor.post(of_project, data={"name": "eve3", "password": "correct horse"}).status_code == 410
    states = {one["email"]: one["state"] for one in owner.get("/api/invitations").json()}
    assert (states["eve2@lab.example"], states["eve3@lab.example"]) == ("revoked", "revoked")


def test_a_link_to_a_password_opens_no_private_project_of_others(lab: Lab) -> None:
    admin = browser_of(lab.dashboard, ADA.name)
    person(lab.service, "pat", Role.MEMBER)
    link = invited(lab, admin, "pat@lab.example")
    role = {"role": "viewer", "project": SECRET}
    assert lab.dashboard.http.patch("/api/users/pat", json=role).status_code == 200
    late = lab.dashboard.anonymous().post(link, data={"password": "correct horse"})
    assert late.status_code == 410, "what pat has got since is not its maker's to open either"
    refused = admin.post("/api/invitations", json={"email": "pat@lab.example"})
    assert refused.status_code == 403 and "Only the owner lets pat" in refused.text
    link = invited(lab, lab.dashboard.http, "pat@lab.example")
    assert lab.dashboard.anonymous().post(link, data={"password": "correct horse"}).status_code == 303


def test_a_link_to_a_password_gives_nobody_the_secrets_of_another(lab: Lab) -> None:
    person(lab.service, "pat", Role.MEMBER)
    browser_of(lab.dashboard, "pat").put("/api/secrets/HF_TOKEN", json={"value": "hf_0123456789"}).raise_for_status()
    refused = browser_of(lab.dashboard, ADA.name).post("/api/invitations", json={"email": "pat@lab.example"})
    assert refused.status_code == 403 and "use secrets" in refused.text


def test_the_list_of_all_tokens_names_no_hidden_project(lab: Lab) -> None:
    made = {"name": "ci of sam", "scope": "read", "project": SECRET}
    assert browser_of(lab.dashboard, "sam").post("/api/tokens", json=made).status_code == 201
    path = "/api/tokens?all=true"
    seen = lab.dashboard.http.get(path, headers=lab.headers(ADA)).json()
    assert [one["project"] for one in seen if one["name"] == "ci of sam"] == ["a private project"]
    owned = lab.dashboard.http.get(path).json()
    assert [one["project"] for one in owned if one["name"] == "ci of sam"] == [SECRET]


def test_a_run_that_leaves_a_private_project_does_not_tell_its_name(lab: Lab) -> None:
    run = next(things.run for things in lab.things if things.project == SECRET)
    assert lab.dashboard.http.patch(f"/api/runs/{run}", json={"project": OPEN}).status_code == 200
    history = lab.dashboard.http.get(f"/api/runs/{run}/history", headers=lab.headers(MIA))
    assert f"moved from a private project to {OPEN}" in history.text and SECRET not in history.text


# Rights that were lost meanwhile.


def test_whoever_left_while_their_code_was_brought_launches_nothing(lab: Lab, public: Path) -> None:
    rights = lab.service.identities.rights("max")
    assert rights is not None
    assert lab.dashboard.http.delete("/api/users/max").status_code == 200
    spec = RunSpec(target=str(public / "train.py"), gpus_per_node=1, project=OPEN)
    with acting.acting(rights), pytest.raises(Denied):
        lab.service.launch(spec)


def test_notifications_of_a_run_end_with_the_right_to_see_it(lab: Lab) -> None:
    things = next(things for things in lab.things if things.project == SECRET)
    with as_person(lab, "vera", SECRET):
        alert = alerts.create(lab.service.store, "hung", "browser", None, lab.service.clock(), SECRET)
    event = RunEvent("event/1", things.run, lab.service.clock(), "sam-trains hangs.")
    events.record(lab.service.store, [(alert, event)], lab.service.clock())

    def notifications() -> list[str]:
        answer = lab.dashboard.http.get("/api/notifications", headers=lab.headers(VERA))
        return [one["sentence"] for one in answer.json()["notifications"]]

    assert notifications() == ["sam-trains hangs."]
    gone = {"role": None, "project": SECRET}
    assert lab.dashboard.http.patch("/api/users/vera", json=gone).status_code == 200
    assert notifications() == []

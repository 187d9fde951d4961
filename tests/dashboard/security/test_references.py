"""What a request names and its sender may not see is answered as what does not exist, in every field of every body."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from sqlalchemy import update

from dashboard.app.server import create_app
from dashboard.service.service import Service
from dashboard.settings import Settings
from db.models import Attempt, Membership
from db.people import projects
from db.people.ownership import DEFAULT_PROJECT
from db.studies import studies
from db.studies.studies import SweepView
from domain.assignments import Assignment
from domain.people.references import Named, references_in
from domain.people.roles import Role
from domain.scaling.plan import ScalingPlan
from domain.spec import RunSpec
from domain.sweeps import SweepPlan
from tests.dashboard.persons import browser_of, person
from tests.dashboard.running import Running, running, wait_for
from tests.dashboard.security.cases import WATCH
from tests.dashboard.security.lab import OPEN, PEOPLE, SCALING, SECRET, Lab, Things
from tests.dashboard.security.references import UNMARKED, fields_of, unread

OUTSIDERS = ["member, whose the objects are", "base admin", "token for the open project"]
INSIDER = PEOPLE["owner"]
PLAN = {"parameters": {"lr": {"values": [0.1]}}, "metric": "loss"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One lab for all that is only refused."""
    with running(tmp_path_factory.mktemp("references") / "data") as dashboard:
        made = Lab(dashboard)
        secret = {"value": "of-the-private-project", "project": SECRET}
        assert dashboard.http.put("/api/secrets/HIDDEN_KEY", json=secret).status_code == 200
        yield made


@pytest.fixture
def own(dashboard: Running) -> Lab:
    """A lab that a test may change."""
    return Lab(dashboard)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody on this machine may list; tmp_path is private."""
    folder = Path(tempfile.mkdtemp(prefix="rankzero-public-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def private(lab: Lab) -> Things:
    return next(things for things in lab.things if things.project == SECRET)


# Every field of every body.


def test_every_field_that_may_name_something_is_marked_or_explained(tmp_path: Path) -> None:
    service = Service.open(Settings(data=tmp_path / "data"))
    try:
        routes = create_app(service.settings, service, with_pages=False).router.routes
        fields = set(fields_of(routes))
        assert sorted(set(unread(routes))) == [], "describe their bodies in tests/dashboard/security/references.py"
    finally:
        service.close()
    reading = {field for field in fields if field.name.startswith(("GET", "HEAD"))}  # the matrix tries these
    unmarked = {field.name for field in fields - reading if not field.is_marked}
    assert sorted(unmarked - UNMARKED.keys()) == [], (
        "mark what it names (domain/people/references.py), or say what it holds"
    )
    assert sorted(UNMARKED.keys() - unmarked) == []
    tried = {case.field for case in CASES} | {f"RunSpec.{name}" for name in PATHS}
    assert sorted({field.name for field in fields if field.is_marked} - tried) == [], "try it here"


PATHS = {name for name, mark in references_in(RunSpec).items() if mark.named in (Named.CODE, Named.NODE_PATH)}
"""Tried below and in test_escalation.py: no right of ours opens a path."""


class Case(NamedTuple):
    """A body with one field that names something hidden, or something that does not exist."""

    field: str
    method: str
    path: str
    json: Any
    """`{}` stands for the name."""
    hidden: str
    """The attribute of the private project's things, or the name itself."""
    absent: str


def spec(**more: Any) -> dict[str, Any]:
    return {"target": "image_classifier", "gpus_per_node": 1, "project": OPEN} | more


def of_specs(field: str, hidden: str, absent: str, **wanted: Any) -> list[Case]:
    """The field in each body that holds a spec; a study refuses to resume at all."""
    seeded = wanted | {"args": ["{seed}"]}
    cases = [
        Case(f"RunSpec.{field}", "POST", "/api/runs", spec(**wanted), hidden, absent),
        Case(f"RunSpec.{field}", "POST", "/api/runs/seeds", {"spec": spec(**seeded), "seeds": [1]}, hidden, absent),
        Case(f"RunSpec.{field}", "POST", "/api/sweeps", {"spec": spec(**wanted)} | PLAN, hidden, absent),
        Case(f"RunSpec.{field}", "POST", "/api/scaling-studies", {"spec": spec(**wanted), "gpus": [1]}, hidden, absent),
        Case(f"RunSpec.{field}", "POST", "/api/preview", spec(**wanted), hidden, absent),
    ]
    return [case for case in cases if not (field == "resume" and case.path == "/api/scaling-studies")]


NO_CODE, NO_RUN = "0" * 64, "z" * 10
IMPORTED = {"format": "csv", "source": "here", "digest": NO_CODE, "name": "x", "state": "stopped", "started_at": 1.0}
ALERT = {"rule": "hung", "target": "browser"}
CASES = [
    *of_specs("resume", "run", NO_RUN, resume="{}"),
    *of_specs("resume", "run", NO_RUN, resume="{}:work/last.pt"),
    *of_specs("snapshot", "snapshot", NO_CODE, target="/x", snapshot="{}", entry="train.py"),
    *of_specs("secrets", "HIDDEN_KEY", "ABSENT_KEY", secrets=["{}"]),
    Case("AlertRequest.run", "POST", "/api/alerts", ALERT | {"run": "{}"}, "run", NO_RUN),
    Case("AlertRequest.run", "POST", "/api/alerts", ALERT | {"run": "{}", "act": "end"}, "run", NO_RUN),
    Case("LinkRequest.runs", "POST", "/api/shared-links", {"runs": ["{}"]}, "run", NO_RUN),
    Case("BulkRequest.runs", "POST", "/api/bulk-actions", {"action": "stop", "runs": ["{}"]}, "run", NO_RUN),
    *[
        Case(f"{model}.project", method, path, body | {"project": "{}"}, SECRET, "")
        for model, method, path, body in [
            ("RunSpec", "POST", "/api/runs", spec()),
            ("AlertRequest", "POST", "/api/alerts", ALERT),
            ("ImportRequest", "POST", "/api/imports", IMPORTED),
            ("WatchRequest", "POST", "/api/watch", WATCH | {"watch_id": NO_RUN, "run_id": NO_RUN}),
            ("RunEdit", "PATCH", "/api/runs/OWN", {}),
            ("SecretValue", "PUT", "/api/secrets/KEY", {"value": "a-long-value-of-it"}),
            ("TokenRequest", "POST", "/api/tokens", {"name": "ci", "scope": "read"}),
            ("InvitationRequest", "POST", "/api/invitations", {"email": "eve@lab.example"}),
            ("RoleChange", "PATCH", "/api/users/vic", {"role": "viewer"}),
        ]
    ],
]  # fmt: skip


class Asking(NamedTuple):
    """Somebody who sends bodies to a lab."""

    lab: Lab
    who: str

    def send(self, case: Case, name: str) -> tuple[int, str]:
        """The status and the text of the answer, without the name."""
        path = case.path.replace("OWN", self.lab.things[0].run)
        body = json.loads(json.dumps(case.json).replace("{}", name))
        headers = self.lab.headers(PEOPLE[self.who])
        answer = self.lab.dashboard.http.request(case.method, path, json=body, headers=headers)
        if case.path == "/api/bulk-actions" and answer.status_code == 202:
            return 202, self._refusals(answer, name)
        return answer.status_code, answer.text.replace(name, "NAME").replace(name[:12], "NAME")

    def _refusals(self, answer: httpx2.Response, name: str) -> str:
        path, headers = f"/api/bulk-actions/{answer.json()['id']}", self.lab.headers(PEOPLE[self.who])

        def ended() -> Any:
            shown = self.lab.dashboard.http.get(path, headers=headers).json()
            return shown["refused"] if shown["state"] == "done" else None

        return json.dumps(wait_for(ended, "the action to end")).replace(name, "NAME")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.field} {case.path} {json.dumps(case.json)[:60]}")
def test_what_is_hidden_is_answered_as_what_is_absent(lab: Lab, case: Case) -> None:
    hidden, before = getattr(private(lab), case.hidden, case.hidden), made(lab)
    for who in OUTSIDERS:
        asking = Asking(lab, who)
        status, text = asking.send(case, hidden)
        if case.absent:
            assert (status, text) == asking.send(case, case.absent), who
            assert status in (404, 422) or case.path in ("/api/preview", "/api/bulk-actions"), (who, text)
            assert "NAME" in text, "the sentence says what there is not"
        else:  # a free name could be used: that it is taken is all that is told
            assert status == 403, (who, text)
    assert made(lab) == before, "nothing was launched, and nothing is fetched"


def test_a_launch_that_leaves_its_project_empty_is_judged_as_one_in_the_default_project(own: Lab) -> None:
    newcomer = browser_of(own.dashboard, person(own.service, "dee", **{DEFAULT_PROJECT: Role.MEMBER}))
    for path, status in (("/api/runs", 201), ("/api/preview", 200)):
        assert newcomer.post(path, json=spec(project="")).status_code == status
    projects.set_privacy(own.service.store, DEFAULT_PROJECT, True, 0.0)
    own.service.identities.forget()
    for path in ("/api/runs", "/api/preview"):
        outsider = own.headers(PEOPLE["another member"])
        assert own.dashboard.http.post(path, json=spec(project=""), headers=outsider).status_code == 403


def made(lab: Lab) -> list[int]:
    return [
        len(lab.dashboard.http.get(f"/api/{kind}?limit=100").json()) for kind in ("runs", "sweeps", "scaling-studies")
    ]


def test_insiders_use_all_of_it(own: Lab) -> None:
    things, http = private(own), own.dashboard.http
    headers = own.headers(PEOPLE["member of the private project"])
    for wanted in ({"resume": things.run}, {"resume": f"{things.run}:work/last.pt"}):
        answer = http.post("/api/runs", json=spec(project=SECRET, **wanted), headers=headers)
        assert answer.status_code == 201, answer.text
    answer = http.post("/api/sweeps", json={"spec": spec(project=SECRET, resume=things.run)} | PLAN, headers=headers)
    assert answer.status_code == 201, answer.text


# Sweeps, studies and alerts act with the rights that their person has then.


def test_a_sweep_ends_when_what_it_names_is_hidden_from_its_person(own: Lab) -> None:
    sweep_id = as_stored(own, own.things[0], lambda now, plan, spec: studies.create(own.service.store, spec, plan, now))
    ended = ended_sweep(own, sweep_id)
    assert ended.trials == [] and f"Ended: resume: there is no run '{private(own).run}'" in str(ended.message)


def ended_sweep(lab: Lab, sweep_id: str) -> SweepView:
    """The sweep, once it has ended."""
    store = lab.service.store
    return wait_for(lambda: (one := studies.study(store, sweep_id, SweepPlan)).ended_at and one, "the sweep to end")


def as_stored(lab: Lab, things: Things, create: Any) -> str:
    """Store a request that names the private run, as if it had been visible when it was made."""
    resumed = lab.spec(OPEN).model_copy(update={"resume": private(lab).run})
    with lab.acting(things):
        return str(create(lab.service.clock(), SweepPlan.model_validate(PLAN), resumed))


def test_a_sweep_goes_on_while_its_person_sees_what_it_names_and_ends_with_that(own: Lab) -> None:
    store = own.service.store
    member = person(own.service, "flo", Role.MEMBER, **{SECRET: Role.VIEWER})
    plan = {"parameters": {"lr": {"values": [0.1, 0.2]}}, "metric": "loss", "parallel": 1}
    body = {"spec": spec(resume=private(own).run)} | plan
    made = browser_of(own.dashboard, member).post("/api/sweeps", json=body)
    assert made.status_code == 201, made.text
    sweep_id = made.json()["id"]
    (trial,) = wait_for(lambda: studies.study(store, sweep_id, SweepPlan).trials, "the first trial")
    assert trial.run_id and own.dashboard.run(trial.run_id)["by"] == "flo"
    with store.write() as session:
        session.delete(session.get_one(Membership, ("flo", SECRET)))
    own.service.identities.forget()
    own.service.stop(trial.run_id)
    finish(own, trial.run_id)
    ended = ended_sweep(own, sweep_id)
    assert len(ended.trials) == 1 and "there is no run" in str(ended.message)


def finish(lab: Lab, run_id: str) -> None:
    """Report the end of a run that the node was told to stop."""
    for assignment in lab.node.client.desired_state(None, 0).assignments:
        if assignment.run_id == run_id:
            lab.node.report(lab._task(assignment), "stopped")


def test_a_study_launches_nothing_that_is_hidden_from_its_person(own: Lab) -> None:
    study_id = as_stored(
        own, own.things[0],
        lambda now, _, spec: studies.create(own.service.store, spec, SCALING, now),
    )  # fmt: skip
    wait_for(lambda: studies.study(own.service.store, study_id, ScalingPlan).ended_at, "the study to end")
    study = studies.study(own.service.store, study_id, ScalingPlan)
    assert study.trials == [] and "Ended: resume: there is no run" in str(study.message)


def test_a_trial_that_was_moved_out_of_sight_is_not_stopped_by_its_sweep(own: Lab) -> None:
    headers = own.headers(PEOPLE["member, whose the objects are"])
    made = own.dashboard.http.post("/api/sweeps", json={"spec": spec()} | PLAN, headers=headers)
    sweep_id = made.json()["id"]
    (trial,) = wait_for(lambda: studies.study(own.service.store, sweep_id, SweepPlan).trials, "the trial")
    assert own.dashboard.http.patch(f"/api/runs/{trial.run_id}", json={"project": SECRET}).status_code == 200
    assert own.dashboard.http.post(f"/api/sweeps/{sweep_id}/stop", headers=headers).status_code == 200
    later = own.dashboard.http.post("/api/sweeps", json={"spec": spec()} | PLAN, headers=headers).json()["id"]
    wait_for(lambda: studies.study(own.service.store, later, SweepPlan).trials, "the conductor to have come by twice")
    assert own.dashboard.run(str(trial.run_id))["state"] != "stopped"


def test_a_token_sets_no_alert_that_may_more_than_the_token(lab: Lab) -> None:
    def status(who: str, **more: str) -> int:
        body = {"rule": "hung", "target": "browser"} | more
        return lab.dashboard.http.post("/api/alerts", json=body, headers=lab.headers(PEOPLE[who])).status_code

    assert status("token to launch", act="end") == 403, "it acts when the token no longer counts"
    assert status("token for the open project") == 403, "it would tell of all projects"
    assert status("token for the open project", project=OPEN) == 201
    assert status("token to act", act="end") == 201


# Paths, and files that scripts name.

OPTION = "--secret-option"
SCRIPT = f"import argparse\np = argparse.ArgumentParser()\np.add_argument('{OPTION}')\np.parse_args()\n"


def written(path: Path, content: str, mode: int) -> Path:
    path.write_text(content)
    path.chmod(mode)
    return path


def test_a_sweep_in_place_tells_nothing_of_a_script_that_is_not_for_everybody(own: Lab, public: Path) -> None:
    script = written(public / "train.py", SCRIPT, 0o600)
    headers = own.headers(PEOPLE["another member"])
    plan = {"parameters": {"nothing": {"values": [1, 2]}}, "metric": "loss"}
    body = {"spec": spec(target=str(script), workdir=str(public))} | plan
    made = own.dashboard.http.post("/api/sweeps", json=body, headers=headers)
    assert made.status_code == 201, made.text
    shown = wait_for(
        lambda: (
            (one := own.dashboard.http.get(f"/api/sweeps/{made.json()['id']}", headers=headers)).json()["trials"]
            and one
        ),
        "the first trial",
    )
    assert "secret-option" not in shown.text and "It could not be launched" not in shown.text


@pytest.mark.parametrize("who", ["another member", "base admin", "token of the owner for the open project"])
def test_neither_modules_nor_imports_nor_settings_of_others_are_read(lab: Lab, public: Path, who: str) -> None:
    written(public / "hidden.py", SCRIPT, 0o600)
    written(public / "open.py", "from hidden import p\nimport argparse\nargparse.ArgumentParser()\n", 0o644)
    written(public / "conf.yaml", "secret-option: 1\n", 0o600)
    hydra = f"import hydra\n@hydra.main(config_path='{public}', config_name='conf')\ndef main(c): pass\nmain()\n"
    written(public / "configured.py", hydra, 0o644)
    for query in ({"module": "hidden"}, {"entry": "hidden.py"}, {"entry": "open.py"}, {"entry": "configured.py"}):
        wanted = {"target": str(public)} | query
        assert "secret-option" in lab.dashboard.http.get("/api/script", params=wanted).text or query == {}
        answer = lab.dashboard.http.get("/api/script", params=wanted, headers=lab.headers(PEOPLE[who]))
        assert "secret-option" not in answer.text, query


def test_an_entry_that_is_private_is_refused_as_one_that_is_absent(lab: Lab, public: Path) -> None:
    written(public / "broken.py", "def f(:\n", 0o600)
    (public / "inner").mkdir(mode=0o700)
    written(public / "inner" / "main.py", SCRIPT, 0o644)
    headers = lab.headers(PEOPLE["another member"])

    def refusal(**wanted: str) -> str:
        answer = lab.dashboard.http.post("/api/runs", json=spec(target=str(public), **wanted), headers=headers)
        assert answer.status_code == 422, answer.text
        return answer.text.replace("broken", "NAME").replace("absent", "NAME").replace("main", "NAME")

    assert refusal(entry="broken.py") == refusal(entry="absent.py")
    assert refusal(entry="inner/main.py") == refusal(entry="inner/absent.py")
    assert refusal(module="inner.main") == refusal(module="inner.absent")


def test_what_lies_in_a_private_folder_is_told_neither_in_place_nor_by_a_preview(lab: Lab, public: Path) -> None:
    hidden = public / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "venv" / "bin").mkdir(parents=True)
    written(hidden / "venv" / "pyvenv.cfg", "", 0o644)
    written(hidden / "venv" / "bin" / "python", "", 0o755)
    written(hidden / "train.py", SCRIPT, 0o644)
    headers = lab.headers(PEOPLE["another member"])

    def previewed(**wanted: str) -> str:
        answer = lab.dashboard.http.post("/api/preview", json=spec(**wanted), headers=headers)
        return answer.text.replace("nothing", "train").replace("novenv", "venv")

    in_place = {"workdir": str(hidden)}
    assert previewed(target=f"{hidden}/train.py", **in_place) == previewed(target=f"{hidden}/nothing.py", **in_place)
    assert previewed(target=f"{hidden}/train.py") == previewed(target=f"{hidden}/nothing.py")
    python = {"target": "image_classifier", "python": f"{hidden}/venv"}
    assert previewed(**python) == previewed(**python | {"python": f"{hidden}/novenv"})


# Stored code.


def test_the_digest_of_code_opens_nothing_and_its_bytes_do(own: Lab) -> None:
    content = tar_of("train.py", b"print('ours')\n")
    sha256 = hashlib.sha256(content).hexdigest()
    path, http = f"/api/snapshots/{sha256}", own.dashboard.http
    insider, outsider = (own.headers(PEOPLE[who]) for who in ("member of the private project", "another member"))
    code = {"target": "/x", "snapshot": sha256, "entry": "train.py"}
    assert http.put(path, content=content, headers=insider).status_code == 200
    assert http.head(path, headers=outsider).status_code == 404
    own.service.snapshots.forget_unused()
    assert http.post("/api/runs", json=spec(project=SECRET, **code), headers=insider).status_code == 201
    assert http.head(path, headers=outsider).status_code == 404
    refused = http.post("/api/runs", json=spec(**code), headers=outsider)
    assert refused.status_code == 422 and "there is no snapshot" in refused.text
    preview = http.post("/api/preview", json=spec(**code), headers=outsider)
    assert "there is no snapshot" in preview.text
    assert http.put(path, content=content, headers=outsider).status_code == 200
    assert http.head(path, headers=outsider).status_code == 200
    assert http.post("/api/runs", json=spec(**code), headers=outsider).status_code == 201


def tar_of(name: str, content: bytes) -> bytes:
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def test_a_parameter_of_a_sweep_names_no_hidden_checkpoint(own: Lab) -> None:
    script = b"import argparse\np = argparse.ArgumentParser()\np.add_argument('--resume')\np.parse_args()\n"
    content = tar_of("train.py", script)
    sha256, headers = hashlib.sha256(content).hexdigest(), own.headers(PEOPLE["another member"])
    assert own.dashboard.http.put(f"/api/snapshots/{sha256}", content=content, headers=headers).status_code == 200
    body = {"spec": spec(target="/x", snapshot=sha256, entry="train.py"), "metric": "loss"}

    def answer(run_id: str) -> httpx2.Response:
        parameters = {"parameters": {"resume": {"values": [run_id]}}}
        return own.dashboard.http.post("/api/sweeps", json=body | parameters, headers=headers)

    refused, absent = answer(private(own).run), answer(NO_RUN)
    assert refused.status_code == 422, refused.text
    assert refused.text.replace(private(own).run, NO_RUN) == absent.text


def test_the_id_of_an_erased_checkpoint_opens_no_hidden_one(own: Lab) -> None:
    http, node = own.dashboard.http, own.node
    member, insider = (own.headers(PEOPLE[who]) for who in ("another member", "member of the private project"))

    def launched(headers: dict[str, str], **more: Any) -> tuple[str, Assignment]:
        run_id = http.post("/api/runs", json=spec(**more), headers=headers).json()["id"]
        return run_id, wait_for(lambda: assigned(own, run_id), "the assignment")

    source, assignment = launched(member)
    node.report(own._task(assignment), "running")
    erased_id = node.store_checkpoint(own._task(assignment), b"weights")
    node.report(own._task(assignment), "succeeded")
    resuming, assignment = launched(member, resume=source)
    assert assignment.resume_from is not None and assignment.resume_from.checkpoint_id == erased_id
    node.report(own._task(assignment), "running")  # until then nobody may erase what it begins with
    assert http.delete(f"/api/runs/{source}?now=true").status_code == 200
    _, hidden = launched(insider, project=SECRET)
    node.report(own._task(hidden), "running")
    hidden_id = node.store_checkpoint(own._task(hidden), b"hidden weights")
    after = assigned(own, resuming)
    assert after is not None and after.resume_from is None
    token = {"Authorization": f"Bearer {after.token}"}
    for checkpoint_id in {erased_id, hidden_id}:
        file = f"/api/worker/checkpoints/{checkpoint_id}/file"
        assert own.dashboard.anonymous().get(file, headers=token).status_code == 403


def assigned(lab: Lab, run_id: str) -> Assignment | None:
    """What the node is told to run of a run, if anything."""
    return next((one for one in lab.node.client.desired_state(None, 0).assignments if one.run_id == run_id), None)


# Invitations.


def test_invitations_tell_neither_ids_nor_names_nor_addresses(own: Lab) -> None:
    owner, admin = own.dashboard.http, browser_of(own.dashboard, person(own.service, "paul", None, text=Role.ADMIN))
    invited = owner.post("/api/invitations", json={"email": "eve@lab.example", "role": "viewer", "project": SECRET})
    hidden = invited.json()["id"]
    for http in (admin, browser_of(own.dashboard, "ada")):
        refused, absent = (http.delete(f"/api/invitations/{one}") for one in (hidden, "zzzzzzzz"))
        assert refused.status_code == absent.status_code == 404
        assert refused.text.replace(hidden, "ID") == absent.text.replace("zzzzzzzz", "ID")
        assert SECRET not in refused.text
    taken, free = (admin.post("/api/invitations", json={"email": f"{name}@lab.example"}) for name in ("paul", "nobody"))
    assert (taken.status_code, taken.text) == (free.status_code, free.text) == (403, free.text)


# Secrets.


def test_a_projects_token_lists_and_uses_no_secret_of_its_person(own: Lab) -> None:
    mia = browser_of(own.dashboard, "mia")
    assert mia.put("/api/secrets/MINE", json={"value": "a-value-of-mia"}).status_code == 200
    assert (
        own.dashboard.http.put("/api/secrets/OURS", json={"value": "a-value-of-all", "project": OPEN}).status_code
        == 200
    )
    bound = own.headers(PEOPLE["token for the open project"])
    listed = own.dashboard.http.get("/api/secrets", headers=bound).json()
    assert [(one["name"], one["user"], one["project"]) for one in listed] == [("OURS", None, OPEN)]
    assert {one["name"] for one in mia.get("/api/secrets").json()} == {"MINE", "OURS"}
    refused = own.dashboard.http.post("/api/runs", json=spec(secrets=["MINE"]), headers=bound)
    absent = own.dashboard.http.post("/api/runs", json=spec(secrets=["NONE"]), headers=bound)
    assert (refused.status_code, refused.text) == (422, absent.text.replace("NONE", "MINE"))


@pytest.mark.parametrize("begun", ["sweep", "study", "restart"])
def test_what_a_projects_token_began_uses_no_secret_of_its_person(own: Lab, begun: str) -> None:
    put_in_both(own, "KEY")
    bound, both = own.headers(PEOPLE["token for the open project"]), {"secrets": ["KEY"]}
    path, body = {
        "sweep": ("/api/sweeps", {"spec": spec(**both)} | PLAN),
        "study": ("/api/scaling-studies", {"spec": spec(**both), "gpus": [1]}),
        "restart": ("/api/runs", spec(**both, max_restarts=1)),
    }[begun]
    assert own.dashboard.http.post(path, json=body, headers=bound).status_code == 201
    assignment = wait_for(lambda: with_secrets(own), "the run")
    if begun == "restart":
        own.node.report(own._task(assignment), "running")
        own.node.report(own._task(assignment), "failed", reason="script error", message="It broke.")
        without_pause(own, assignment.run_id)
        assignment = wait_for(lambda: with_secrets(own), "the restart")
        assert assignment.attempt == 2
    assert assignment.secrets == {"KEY": "a-value-of-all"}


def put_in_both(lab: Lab, name: str) -> None:
    """Store a secret of the member and one of the project, of the same name."""
    own, ours = {"value": "a-value-of-mia"}, {"value": "a-value-of-all", "project": OPEN}
    assert browser_of(lab.dashboard, "mia").put(f"/api/secrets/{name}", json=own).status_code == 200
    assert lab.dashboard.http.put(f"/api/secrets/{name}", json=ours).status_code == 200


def with_secrets(lab: Lab) -> Assignment | None:
    """What the node is told to run with secrets, if anything."""
    return next((one for one in lab.node.client.desired_state(None, 0).assignments if one.secrets), None)


def without_pause(lab: Lab, run_id: str) -> None:
    """Let a restart begin at once."""
    with lab.service.store.write() as session:
        session.execute(update(Attempt).where(Attempt.run_id == run_id).values(not_before=None))
    lab.service.schedule()

"""Whatever changes something is in the audit log: every route that is no mere reading has its word, or a reason."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from db.models import AuditEntry
from db.people import projects
from domain.people.audit import AuditAction
from domain.people.rights import OWNER
from domain.people.roles import Scope
from tests.dashboard.persons import browser_of
from tests.dashboard.running import Running, running
from tests.dashboard.security.cases import CASES
from tests.dashboard.security.lab import PEOPLE, Lab
from tests.dashboard.security.sending import Sending, routes

DID = AuditAction
READS = "it changes nothing"
RUNS_OWN = "each run that it is about has an entry of its own"
WRITES: dict[str, dict[str, AuditAction | str]] = {
    "/api/runs": {"POST": DID.LAUNCHED},
    "/api/runs/seeds": {"POST": DID.LAUNCHED},
    "/api/preview": {"POST": READS},
    "/api/runs/{run_id}": {"PATCH": DID.EDITED, "DELETE": DID.DELETED},
    "/api/deleted-runs/{deleted_id}": {"DELETE": DID.ERASED},
    "/api/runs/{run_id}/restore": {"POST": DID.RESTORED},
    "/api/runs/{run_id}/stop": {"POST": DID.STOPPED},
    "/api/runs/{run_id}/resume": {"POST": DID.RESUMED},
    "/api/runs/{run_id}/stacks": {"POST": DID.STACKS_ASKED},
    "/api/runs/{run_id}/profiles": {"POST": DID.PROFILED},
    "/api/archives": {"POST": DID.IMPORTED},
    "/api/imports": {"POST": DID.IMPORTED},
    "/api/imports/{run_id}/points": {"POST": "its import has an entry"},
    "/api/watch": {"POST": DID.WATCHED},
    "/api/shared-links": {"POST": DID.SHARED},
    "/api/shared-links/{link_id}": {"DELETE": DID.LINK_REVOKED},
    "/api/snapshots/{sha256}": {"PUT": DID.UPLOADED},
    "/api/snapshots/{sha256}/origin": {"PUT": DID.EDITED},
    "/api/uploads": {"POST": DID.UPLOADED},
    "/api/checkpoints/{checkpoint_id}/send-again": {"POST": DID.CHECKPOINT_ASKED},
    "/api/checkpoints/{checkpoint_id}/merge": {"POST": DID.CHECKPOINT_MERGE},
    "/api/checkpoints/{checkpoint_id}/show": {"POST": DID.CHECKPOINT_SHOW},
    "/api/checkpoints/{checkpoint_id}/diff": {"POST": DID.CHECKPOINT_DIFF},
    "/api/checkpoints/{checkpoint_id}/push": {"POST": DID.CHECKPOINT_PUSH},
    "/api/checkpoint-tasks/{task_id}/cancel": {"POST": DID.CHECKPOINT_TASK_CANCELLED},
    "/api/checkpoints/{checkpoint_id}": {"DELETE": DID.CHECKPOINT_DELETED},
    "/api/checkpoints/{checkpoint_id}/pin": {"PUT": DID.CHECKPOINT_PINNED, "DELETE": DID.CHECKPOINT_UNPINNED},
    "/api/checkpoints/{checkpoint_id}/restore": {"POST": DID.CHECKPOINT_RESTORED},
    "/api/deleted-checkpoints": {"DELETE": DID.BIN_EMPTIED},
    "/api/runs/{run_id}/retention": {"PUT": DID.RETENTION_SET},
    "/api/projects/{project:path}/retention": {"PUT": DID.RETENTION_SET},
    "/api/nodes/{node}": {"DELETE": DID.NODE_REMOVED},
    "/api/nodes/{node}/drain": {"POST": DID.DRAINED},
    "/api/nodes/{node}/undrain": {"POST": DID.UNDRAINED},
    "/api/nodes/{node}/release": {"POST": DID.NODE_RELEASED},
    "/api/nodes/{node}/test": {"POST": DID.HARDWARE_TESTED},
    "/api/nodes/{node}/end-unknown": {"POST": DID.STOPPED},
    "/api/join-tokens": {"POST": DID.TOKEN_MADE},
    "/api/join-tokens/{token_id}": {"DELETE": DID.TOKEN_REVOKED},
    "/api/node-installations/{key}": {"PUT": "a terminal says how far it is; its join token has an entry"},
    "/api/preflight": {"POST": DID.PREFLIGHT},
    "/api/backup": {"POST": DID.BACKUP},
    "/api/sweeps": {"POST": DID.LAUNCHED},
    "/api/sweeps/{study_id}/stop": {"POST": DID.STOPPED},
    "/api/scaling-studies": {"POST": DID.LAUNCHED},
    "/api/scaling-studies/{study_id}/stop": {"POST": DID.STOPPED},
    "/api/alerts": {"POST": DID.ALERT_MADE},
    "/api/alerts/{alert_id}": {"DELETE": DID.ALERT_REMOVED},
    "/api/alerts/{alert_id}/test": {"POST": DID.ALERT_TESTED},
    "/api/notifications/shown": {"POST": "a tab says what it has shown its own person"},
    "/api/bulk-actions": {"POST": RUNS_OWN},
    "/api/bulk-actions/consequence": {"POST": READS},
    "/api/bulk-actions/{action_id}/cancel": {"POST": RUNS_OWN},
    "/api/views": {"PUT": DID.VIEW_SAVED, "DELETE": DID.VIEW_DELETED},
    "/api/secrets/{name}": {"PUT": DID.SECRET_SET, "DELETE": DID.SECRET_REMOVED},
    "/api/tokens": {"POST": DID.TOKEN_MADE},
    "/api/tokens/{name}": {"DELETE": DID.TOKEN_REVOKED},
    "/device": {"POST": DID.LOGIN_REFUSED},
    "/api/users/{name}": {"PATCH": DID.ROLE_CHANGED, "DELETE": DID.REMOVED},
    "/api/invitations": {"POST": DID.INVITED},
    "/api/invitations/{invitation_id}": {"DELETE": DID.INVITATION_REVOKED},
    "/api/projects/{project:path}/privacy": {"PUT": DID.PROJECT_MADE_PRIVATE},
    "/api/me": {"PATCH": DID.ACCOUNT_CHANGED},
    "/api/me/password": {"POST": DID.ACCOUNT_CHANGED},
    "/api/me/sessions": {"DELETE": DID.SIGNED_OUT},
    "/api/me/sessions/{session_id}": {"DELETE": DID.SIGNED_OUT},
    "/logout": {"POST": DID.SIGNED_OUT},
    "/login": {"POST": DID.SIGNED_IN},
    "/invite/{secret}": {"POST": DID.JOINED},
    "/mcp": {"POST": "each tool that is called has an entry of its own"},
    "/api/login-requests": {"POST": "nobody's request; what a person answers has an entry"},
    "/api/login-requests/outcome": {"POST": READS},
}
OTHERS = ("/api/worker/", "/tensorboard/", "/perfetto/")
"""What workers report is the record of runs and nodes itself; the pages of other programs change nothing of ours."""
SENT = {
    ("/api/runs/{run_id}", "PATCH"), ("/api/runs/{run_id}/stacks", "POST"), ("/api/uploads", "POST"),
    ("/api/views", "PUT"), ("/api/views", "DELETE"), ("/api/alerts", "POST"), ("/api/alerts/{alert_id}/test", "POST"),
    ("/api/shared-links", "POST"), ("/api/nodes/{node}/drain", "POST"), ("/api/tokens", "POST"),
}  # fmt: skip
"""Those of which the matrix has a request that succeeds, at least."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running(tmp_path_factory.mktemp("lab") / "data") as dashboard:
        yield Lab(dashboard)


def test_every_route_that_writes_has_its_word(tmp_path: Path) -> None:
    writing = {
        (path, method) for path, method in routes(tmp_path / "data") if method not in ("GET", "HEAD", "WEBSOCKET")
    }
    writing = {one for one in writing if not one[0].startswith(OTHERS)}
    assert writing == {(path, method) for path, methods in WRITES.items() for method in methods}


def actions_after(dashboard: Running, newest: int) -> set[str]:
    with dashboard.service.store.read() as session:
        return set(session.scalars(select(AuditEntry.action).where(AuditEntry.id > newest)))


def newest_entry(dashboard: Running) -> int:
    with dashboard.service.store.read() as session:
        return session.scalar(select(func.max(AuditEntry.id))) or 0


def test_what_succeeds_is_written_down(lab: Lab) -> None:
    things, sent = lab.things[0], set()
    sending = Sending(lab, lab.dashboard.http, PEOPLE["owner"], things)
    for path, methods in WRITES.items():
        for method, action in methods.items():
            if not isinstance(action, AuditAction) or path not in CASES:
                continue
            before, case = newest_entry(lab.dashboard), CASES[path][method]
            case = case._replace(is_live=case.is_live or action is DID.STACKS_ASKED)
            if sending.send(path, method, case, things).is_success:
                changed = actions_after(lab.dashboard, before)
                assert action in changed or (path, method) in UNCHANGED, (path, method, changed)
                sent.add((path, method))
            if method == "DELETE":
                lab.renew(things)
    assert sorted(SENT - sent) == []


UNCHANGED = {
    ("/api/runs/{run_id}/stop", "POST"), ("/api/snapshots/{sha256}/origin", "PUT"),
    ("/api/checkpoints/{checkpoint_id}/restore", "POST"), ("/api/deleted-checkpoints", "DELETE"),
    ("/api/secrets/{name}", "DELETE"), ("/api/projects/{project:path}/privacy", "PUT"), ("/logout", "POST"),
    ("/api/sweeps/{study_id}/stop", "POST"), ("/api/scaling-studies/{study_id}/stop", "POST"),
    ("/api/checkpoint-tasks/{task_id}/cancel", "POST"),
}  # fmt: skip
"""Requests of the matrix that change nothing: it is so already, or stays as others rely on it."""


def test_uploads_views_and_ends_of_sessions_name_their_objects(dashboard: Running) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("train.py"), io.BytesIO())
    sha256 = hashlib.sha256(archive.getvalue()).hexdigest()
    assert dashboard.http.put(f"/api/snapshots/{sha256}", content=archive.getvalue()).is_success
    for how in ("PUT", "PUT", "DELETE"):
        query = {"json": {"name": "mine", "project": "vision"}} if how == "PUT" else {"params": {"name": "mine"}}
        assert dashboard.http.request(how, "/api/views", **query).is_success
    dashboard.http.delete("/api/views", params={"name": "mine"})
    browser, _ = browser_of(dashboard, OWNER), browser_of(dashboard, OWNER)
    assert browser.delete("/api/me/sessions").status_code == 204
    entries = dashboard.http.get("/api/audit").json()
    did = [(entry["action"], entry["object"], entry["project"]) for entry in reversed(entries)]
    assert did == [
        ("uploaded", f"code {sha256[:12]}", None),
        ("view-saved", "view mine", "vision"),
        ("view-saved", "view mine", "vision"),
        ("view-deleted", "view mine", "vision"),
        ("signed-in", "person owner", None),
        ("signed-in", "person owner", None),
        ("signed-out", "person owner", None),
    ]
    assert entries[0]["more"] == {"sessions": 2}


def test_view_that_names_a_private_project_is_for_its_managers(dashboard: Running) -> None:
    projects.set_privacy(dashboard.service.store, "moonshot", True, 0.0)
    dashboard.http.put("/api/views", json={"name": "of Moonshot"})
    dashboard.http.delete("/api/views", params={"name": "of Moonshot"})
    did = [(entry["action"], entry["project"]) for entry in dashboard.http.get("/api/audit").json()[:2]]
    assert did == [("view-deleted", "moonshot"), ("view-saved", "moonshot")]


def test_refused_login_is_written_down(dashboard: Running) -> None:
    asked = dashboard.anonymous().post("/api/login-requests", json={"name": "laptop", "scope": "act"}).json()
    form = {"code": asked["code"], "answer": "refuse"}
    assert browser_of(dashboard, OWNER).post("/device", data=form).status_code == 200
    (entry, *_) = dashboard.http.get("/api/audit").json()
    assert (entry["action"], entry["by"], entry["object"]) == ("login-refused", OWNER, "machine laptop")


@pytest.mark.parametrize(
    ("typed", "name"),
    [("Ana", "ana"), ("ANA@lab.example", "ana@lab.example"), ("pass phrase of Ana", "somebody")],
)
def test_refused_sign_in_names_only_what_can_be_a_name(dashboard: Running, typed: str, name: str) -> None:
    assert dashboard.anonymous().post("/login", data={"person": typed, "password": "x"}).status_code == 401
    (entry, *_) = dashboard.http.get("/api/audit").json()
    assert (entry["action"], entry["object"]) == ("sign-in-refused", name)


@pytest.mark.parametrize("scope", [None, Scope.READ])
def test_refused_sign_in_holds_no_token_that_was_typed_as_a_name(dashboard: Running, scope: Scope | None) -> None:
    """A token is recognisable in any case of its letters."""
    token = dashboard.token
    if scope is not None:
        token = dashboard.http.post("/api/tokens", json={"name": "ci", "scope": scope}).json()["token"]
    dashboard.anonymous().post("/login", data={"person": token, "password": "x"})
    assert token.lower() not in dashboard.http.get("/api/audit.jsonl").text.lower()

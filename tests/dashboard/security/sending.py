"""Requests of the matrix as people of the lab send them, and what became of each."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import httpx2
from starlette.routing import Route, WebSocketRoute

from dashboard.app.server import create_app
from dashboard.security.guard import policy
from dashboard.service.service import Service
from dashboard.settings import Settings
from db.people.ownership import ObjectKind
from tests.dashboard.security.cases import Case
from tests.dashboard.security.lab import MISSING, SECRET, Lab, Person, Things


def routes(folder: Path) -> list[tuple[str, str]]:
    """The application's own routes and their methods."""
    service = Service.open(Settings(data=folder))
    try:
        app = create_app(service.settings, service, with_pages=False)
        own = [route for route in app.router.routes if isinstance(route, Route | WebSocketRoute)]
        assert len(own) == len(app.router.routes)
        return sorted({(route.path, method) for route in own for method in policy.methods_of(route)})
    finally:
        service.close()


class Sending:
    """Requests of one person about one person's things."""

    def __init__(self, lab: Lab, http: httpx2.Client, person: Person, things: Things) -> None:
        self.lab, self.http, self.person, self.things = lab, http, person, things

    def outcome(self, path: str, method: str, case: Case) -> tuple[str, Any]:
        """allowed, denied or hidden, and the answer."""
        answer = self.send(path, method, case, self.things)
        if answer.status_code == 403:
            assert method == "HEAD" or answer.json()["detail"]["message"].endswith((".", "`.")), answer.text
            return "denied", answer.text
        if answer.status_code == 404 and self._is_as_missing(answer, path, method, case):
            return "hidden", answer.text
        assert answer.status_code not in (401, 405, 500), (method, path, answer.text)
        return "allowed", answer.text

    def get(self, address: str) -> str:
        """The text of an answer."""
        return self.http.get(address, headers=self.lab.headers(self.person)).text

    def _is_as_missing(self, answer: httpx2.Response, path: str, method: str, case: Case) -> bool:
        can_be_hidden = isinstance(policy.rule_of(path, method).of, ObjectKind) or case.about in ABOUT_ONE
        if not can_be_hidden:
            return False
        nothing = missing(self.things)
        other = self.send(path, method, case, nothing)
        pairs = [(getattr(nothing, name), getattr(self.things, name)) for name in NAMED]
        text = other.text
        for absent, present in pairs:
            text = text.replace(absent, present)
        return other.status_code == 404 and text == answer.text

    def send(self, path: str, method: str, case: Case, things: Things) -> httpx2.Response:
        """Send the request about these things."""
        body = None if case.json is None else json.loads(self._filled(json.dumps(case.json), things))
        address = f"{self._path(path, case, things)}?{self._filled(case.query, things)}".rstrip("?")
        headers = self.lab.headers(self.person)
        if case.content is not None:
            return self.http.request(method, address, headers=headers, content=case.content)
        return self.http.request(method, address, headers=headers, json=body)

    def _filled(self, text: str, things: Things) -> str:
        source = f"{things.by}/{things.project}/{self.person.token}"
        digest = hashlib.sha256(source.encode()).hexdigest()
        values = vars(things) | {"source": source, "digest": digest, "watch": digest[:10]}
        values["is_private"] = str(things.project == SECRET).lower()
        return re.sub(r"\{(\w+)\}", lambda match: str(values[match[1]]), text)

    def _path(self, path: str, case: Case, things: Things) -> str:
        values = {
            "run_id": things.live if case.is_live else things.run, "checkpoint_id": things.checkpoint,
            "task_id": things.task,
            "study_id": things.sweep if path.startswith("/api/sweeps") else things.study,
            "alert_id": things.alert, "link_id": things.link,
            "sha256": things.snapshot, "profile_id": "p" * 10, "rank": "0", "node": "n0", "test_id": "1",
            "token_id": "t" * 8, "key": "0" * 16, "check_id": "1", "action_id": things.bulk,
            "token": things.shared, "issued": "1.2.3", "path": "index.html", "name": "HF_TOKEN",
            "fence": "1", "node_rank": "0", "project": things.project, "invitation_id": "i" * 8, "session_id": "s" * 16,
            "secret": "x", "deleted_id": things.run,
        }  # fmt: skip
        return re.sub(r"\{(\w+)(?::\w+)?\}", lambda match: values[match[1]], path)


ABOUT_ONE = ("run", "project page", "members", "bulk action")
NAMED = ("live", "run", "checkpoint", "task", "sweep", "study", "alert", "link", "snapshot", "bulk", "project")


def missing(things: Things) -> Things:
    """Things of which there are none."""
    names = ("run", "live", "sweep", "study", "alert", "link", "bulk")
    ids = {name: f"{MISSING}{place}" for place, name in enumerate(names)}
    more = {
        "checkpoint": "987654",
        "task": "987654",
        "snapshot": "0" * 64,
        "shared": "x",
        "view": "none",
        "project": "no-such-project",
    }
    return Things(by=things.by, **ids | more)

"""Every route by every method for everybody: what is allowed, denied with a sentence, or as if it did not exist."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.routing import Route, WebSocketRoute
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from dashboard.api.runs.live import UNKNOWN_RUN
from dashboard.app.server import create_app
from dashboard.security.guard import policy
from dashboard.security.guard.policy import AccessRule, Of
from dashboard.service.service import Service
from dashboard.settings import Settings
from db.people.ownership import ObjectKind
from domain.people.roles import Action
from tests.dashboard.running import running
from tests.dashboard.security.cases import CASES, UNJUDGED, Case
from tests.dashboard.security.lab import MISSING, PEOPLE, RANKS, SECRET, Lab, Person, Things

SCOPES = ["read", "launch", "act", "admin"]
NEEDS = {
    Action.SEE: ("viewer", "read"),
    Action.LAUNCH: ("member", "launch"),
    Action.ACT: ("member", "act"),
    Action.RESTORE: ("admin", "admin"),
    Action.MANAGE: ("admin", "admin"),
    Action.OPERATE: ("admin", "admin"),
    Action.AUDIT: ("admin", "admin"),
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One lab for all tests: no request changes what another one needs."""
    with running(tmp_path_factory.mktemp("lab") / "data") as dashboard:
        yield Lab(dashboard)


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


def test_every_route_is_in_the_matrix(tmp_path: Path) -> None:
    there = routes(tmp_path / "data")
    judged = {route for route in there if not route[0].startswith(tuple(UNJUDGED))}
    in_matrix = {(path, method) for path, cases in CASES.items() for method in cases}
    assert sorted(judged - in_matrix) == [], "add them to tests/dashboard/security/cases.py"
    assert sorted(in_matrix - judged) == []
    for path, method in there:
        is_judged = policy.rule_of(path, method).of is not Of.OTHERS
        assert is_judged is ((path, method) in judged), (method, path)


# The rules of the issue, written down a second time.


def is_enough(person: Person, action: Action, project: str | None) -> bool:
    role, scope = NEEDS[action]
    own = person.role_in(project)
    has_scope = SCOPES.index(person.scope) >= SCOPES.index(scope)
    return has_scope and own is not None and RANKS.index(own) >= RANKS.index(role)


def judged(person: Person, action: Action, project: str | None, by: str | None) -> str:
    is_admin = person.role_in(project) in ("admin", "owner")
    is_foreign = action is Action.ACT and not is_admin and by != person.name
    return "allowed" if is_enough(person, action, project) and not is_foreign else "denied"


def is_possible(person: Person, action: Action) -> bool:
    return any(is_enough(person, action, project) for project in (None, SECRET, person.only, *person.projects))


def of_object(person: Person, action: Action, things: Things) -> str:
    return "hidden" if person.role_in(things.project) is None else judged(person, action, things.project, things.by)


def expected(person: Person, rule: AccessRule, case: Case, things: Things) -> str:
    action = rule.action
    if isinstance(rule.of, ObjectKind):
        return of_object(person, action, things)
    if rule.of is Of.NOTHING:
        return judged(person, action, None, None)
    if case.about == "person":
        return "denied"  # they are all here by tokens of theirs, which change no account
    if rule.of is Of.SELF:
        is_in_scope = SCOPES.index(person.scope) >= SCOPES.index(NEEDS[action][1])
        is_theirs = (
            case.about not in ("own", "new token") or person.only is None
        )  # a token for one project speaks for no person
        may_make = case.about not in ("token", "new token") or person.scope == "admin"
        return "allowed" if is_in_scope and is_theirs and may_make else "denied"
    if not is_possible(person, action) and (rule.of is Of.MANY or action is not Action.SEE):
        return "denied"
    if case.about == "project":  # what is made there is theirs
        return judged(person, action, things.project, person.name)
    if case.about == "run":
        return of_object(person, action, things)
    if case.about == "view":
        is_admin = is_enough(person, Action.OPERATE, None)
        return "allowed" if is_admin or person.name == things.by else "denied"
    if case.about == "bulk action":
        return "allowed" if person.name == things.by else "hidden"
    return "allowed"


# What the application does.


class Sending:
    """Requests of one person about one person's things."""

    def __init__(self, lab: Lab, http: httpx2.Client, person: Person, things: Things) -> None:
        self.lab, self.http, self.person, self.things = lab, http, person, things

    def outcome(self, path: str, method: str, case: Case) -> tuple[str, Any]:
        """allowed, denied or hidden, and the answer."""
        answer = self._send(path, method, case, self.things)
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
        can_be_hidden = isinstance(policy.rule_of(path, method).of, ObjectKind) or case.about in ("run", "bulk action")
        if not can_be_hidden:
            return False
        nothing = missing(self.things)
        other = self._send(path, method, case, nothing)
        pairs = [(getattr(nothing, name), getattr(self.things, name)) for name in NAMED]
        text = other.text
        for absent, present in pairs:
            text = text.replace(absent, present)
        return other.status_code == 404 and text == answer.text

    def _send(self, path: str, method: str, case: Case, things: Things) -> httpx2.Response:
        body = None if case.json is None else json.loads(self._filled(json.dumps(case.json), things))
        address = f"{self._path(path, case, things)}?{self._filled(case.query, things)}".rstrip("?")
        headers = self.lab.headers(self.person)
        if case.content is not None:
            return self.http.request(method, address, headers=headers, content=case.content)
        return self.http.request(method, address, headers=headers, json=body)

    def _filled(self, text: str, things: Things) -> str:
        source = f"{things.by}/{things.project}/{self.person.token}"
        values = vars(things) | {"source": source, "digest": hashlib.sha256(source.encode()).hexdigest()}
        values["is_private"] = str(things.project == SECRET).lower()
        return re.sub(r"\{(\w+)\}", lambda match: str(values[match[1]]), text)

    def _path(self, path: str, case: Case, things: Things) -> str:
        values = {
            "run_id": things.live if case.is_live else things.run, "checkpoint_id": things.checkpoint,
            "sweep_id": things.sweep, "study_id": things.study, "alert_id": things.alert, "link_id": things.link,
            "sha256": things.snapshot, "profile_id": "p" * 10, "rank": "0", "node": "n0", "test_id": "1",
            "token_id": "t" * 8, "key": "0" * 16, "check_id": "1", "action_id": things.bulk,
            "token": things.shared, "issued": "1.2.3", "path": "index.html", "name": "HF_TOKEN",
            "fence": "1", "node_rank": "0", "project": things.project, "invitation_id": "i" * 8, "session_id": "s" * 16,
            "secret": "x", "deleted_id": things.run,
        }  # fmt: skip
        return re.sub(r"\{(\w+)(?::\w+)?\}", lambda match: values[match[1]], path)


NAMED = ("live", "run", "checkpoint", "sweep", "study", "alert", "link", "snapshot", "bulk", "project")


def missing(things: Things) -> Things:
    """Things of which there are none."""
    names = ("run", "live", "sweep", "study", "alert", "link", "bulk")
    ids = {name: f"{MISSING}{place}" for place, name in enumerate(names)}
    more = {"checkpoint": "987654", "snapshot": "0" * 64, "shared": "x", "view": "none", "project": "no-such-project"}
    return Things(by=things.by, **ids | more)


@pytest.mark.parametrize("who", PEOPLE)
def test_everybody_gets_what_is_theirs_and_no_more(lab: Lab, who: str, tmp_path: Path) -> None:
    person, wrong = PEOPLE[who], []
    for path, cases in CASES.items():
        for method, case in cases.items():
            for things in lab.things:
                if method == "WEBSOCKET":
                    outcome, answer = live(lab, person, things)
                else:
                    sending = Sending(lab, lab.dashboard.http, person, things)
                    outcome, answer = sending.outcome(path, method, case)
                if (right := expected(person, policy.rule_of(path, method), case, things)) != outcome:
                    wrong.append(
                        f"{method} {path} of {things.by}'s in {things.project}: {outcome}, not {right}: {answer[:200]}"
                    )
                if method == "DELETE":
                    lab.renew(things)
    assert not wrong, "\n".join(wrong)


def live(lab: Lab, person: Person, things: Things) -> tuple[str, str]:
    """What the live channel says first."""
    url = lab.dashboard.url.replace("http", "ws") + f"/api/live?run={things.run}"
    with connect(url, additional_headers=lab.headers(person), proxy=None, open_timeout=60, close_timeout=2) as socket:
        try:
            return "allowed", str(socket.recv(timeout=60))
        except ConnectionClosed as closed:
            assert closed.rcvd is not None and closed.rcvd.code == UNKNOWN_RUN
            return "hidden", str(closed)


# What lists, searches and pictures of many say to those for whom a project does not exist.


def everything(lab: Lab, person: Person, things: Things) -> dict[str, str]:
    """What each route answers that is about many objects, asked for those of a project by their ids and words."""
    sending, texts = Sending(lab, lab.dashboard.http, person, things), dict[str, str]()
    for path, cases in CASES.items():
        if "GET" in cases and policy.rule_of(path, "GET").of in (Of.MANY, Of.BODY, Of.SELF):
            texts[path] = sending.outcome(path, "GET", cases["GET"])[1]
    for query in ("filter=tag:", "filter=", f"filter={things.by}-metric", "filter=node:", "filter=project:"):
        texts[f"completions {query}"] = sending.get(f"/api/search/completions?{query}")
    for format in ("json", "html"):
        texts[format] = sending.get(f"/api/export?runs={things.run}&format={format}")
    texts["metrics"] = sending.get("/metrics")
    texts["search"] = sending.get(f"/api/runs?filter=project:{things.project}")
    texts["text"] = sending.get(f"/api/runs?q={things.by}-trains")
    return texts


def test_outsiders_read_nothing_of_a_private_project(lab: Lab) -> None:
    private = next(things for things in lab.things if things.project == SECRET)
    for who in ("base admin", "another member", "viewer", "token for the open project", "nobody yet"):
        for route, text in everything(lab, PEOPLE[who], private).items():
            asked = {private.run, private.project, f"{private.by}-metric", f"{private.by}-trains"}
            told = {mark for mark in private.marks - asked if mark in text}
            named = re.sub(r"(There is no \w+ '[^']*'|You have no role in project \S+)", "", text)
            told |= {mark for mark in asked if mark in named}
            assert not told, (who, route, told, text[:500])


def test_insiders_read_all_of_it(lab: Lab) -> None:
    private = next(things for things in lab.things if things.project == SECRET)
    said = {who: everything(lab, PEOPLE[who], private) for who in ("owner", "member of the private project")}
    for who, texts in said.items():
        silent = {route for route in TELLING if not any(mark in texts[route] for mark in private.marks)}
        assert not silent, who


TELLING = (
    "/api/runs", "/api/named-runs", "/api/overview", "/api/overview/ids", "/api/search/columns", "/api/compare",
    "/api/compare/names", "/api/compare/batches", "/api/compare/curves", "/api/export",
    "/api/logs/search", "/api/shared-links", "/api/nodes", "/api/cluster", "/api/sweeps", "/api/scaling-studies",
    "/api/alerts", "/api/views", "/api/project", "completions filter=tag:",
    "completions filter=project:", "json", "html", "search", "text",
)  # fmt: skip
"""Those that tell insiders something, so that their silence to outsiders is one."""

"""Every route by every method for everybody: what is allowed, denied with a sentence, or as if it did not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from dashboard.api.runs.live import UNKNOWN_RUN
from dashboard.security.guard import policy
from dashboard.security.guard.policy import AccessRule, Of
from db.people.ownership import ObjectKind
from domain.people.roles import Action
from tests.dashboard.running import running
from tests.dashboard.security.cases import CASES, UNJUDGED, Case
from tests.dashboard.security.lab import OPEN, PEOPLE, RANKS, SECRET, Lab, Person, Things
from tests.dashboard.security.sending import Sending, routes

SCOPES = ["read", "launch", "act", "admin"]
AGENTS = (Action.LAUNCH, Action.STOP, Action.STEER)
"""What a token of scope mcp may do beyond reading; the last two to nothing here, as it made nothing of it."""
NEEDS = {
    Action.SEE: ("viewer", "read"),
    Action.LAUNCH: ("member", "launch"),
    Action.ADD: ("member", "launch"),
    Action.STEER: ("member", "act"),
    Action.ACT: ("member", "act"),
    Action.STOP: ("member", "act"),
    Action.SEE_DELETED: ("member", "read"),
    Action.ERASE: ("admin", "admin"),
    Action.MANAGE: ("admin", "admin"),
    Action.OPERATE: ("admin", "admin"),
    Action.AUDIT: ("admin", "admin"),
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One lab for all tests: no request changes what another one needs."""
    with running(tmp_path_factory.mktemp("lab") / "data") as dashboard:
        yield Lab(dashboard)


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


def has_scope(person: Person, action: Action) -> bool:
    if person.scope == "mcp":
        return NEEDS[action][1] == "read" or action in AGENTS
    return SCOPES.index(person.scope) >= SCOPES.index(NEEDS[action][1])


def is_enough(person: Person, action: Action, project: str | None) -> bool:
    role, _ = NEEDS[action]
    own = person.role_in(project)
    return has_scope(person, action) and own is not None and RANKS.index(own) >= RANKS.index(role)


def judged(person: Person, action: Action, project: str | None, by: str | None) -> str:
    is_admin = person.role_in(project) in ("admin", "owner")
    acts = action in (Action.ACT, Action.STEER, Action.STOP)
    is_foreign = acts and (person.scope == "mcp" or (not is_admin and by != person.name))
    return "allowed" if is_enough(person, action, project) and not is_foreign else "denied"


def is_possible(person: Person, action: Action) -> bool:
    return any(is_enough(person, action, project) for project in (None, SECRET, person.only, *person.projects))


def of_object(person: Person, action: Action, things: Things) -> str:
    if person.role_in(things.project) is None and person.keeps(things):
        may_stop = action is Action.STOP and person.scope != "mcp"
        return "allowed" if has_scope(person, action) and (action is Action.SEE or may_stop) else "denied"
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
        is_in_scope = has_scope(person, action)
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
    if case.about in ("project page", "members"):
        has_own = case.about == "project page" and any(map(person.keeps, OWN_IN[things.project]))
        return "hidden" if person.role_in(things.project) is None and not has_own else "allowed"
    if case.about == "view":
        is_admin = is_enough(person, Action.OPERATE, None)
        return "allowed" if is_admin or person.name == things.by else "denied"
    if case.about == "bulk action":
        return "allowed" if person.name == things.by else "hidden"
    return "allowed"


# What the application does.


OWN_IN = {OPEN: [Things(OPEN, "mia"), Things(OPEN, "max")], SECRET: [Things(SECRET, "sam"), Things(SECRET, "lou")]}
"""Whose runs stand in each project."""


SAMPLE = (
    "another member", "viewer", "member of the private project", "who launched before it was private", "token to read",
    "token for the open project",
)  # fmt: skip
"""The others are marked `real`."""


@pytest.mark.parametrize("who", [who if who in SAMPLE else pytest.param(who, marks=pytest.mark.real) for who in PEOPLE])
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
    with lab.dashboard.connect(f"/api/live?run={things.run}", lab.headers(person)) as socket:
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
            named = re.sub(r"(There is no \w+ '[^']*'|(You have no role in|Ask an admin of) project \S+)", "", text)
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

"""A lab on one dashboard: people with every role, an open and a private project, and one of each object in both."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from db import acting
from db.models import Membership, PrivateProject, Run, Study, User, new_id
from db.people import access_tokens
from db.runs import shared_links, snapshots
from db.search import saved_views
from db.token_hashes import hash_token
from domain.people.rights import OWNER
from domain.people.roles import Role, Scope
from domain.people.tokens import Bounds, TokenWanted, new_secret
from domain.scaling.plan import PlannedPoint, ScalingPlan
from domain.search.parser import NamedView
from domain.spec import RunSpec
from domain.sweeps import SweepPlan
from tests.dashboard.running import FakeNode, Running

OPEN, SECRET = "open-vision", "moonshot"
MISSING = "zzzzzzzzz"
POINT = PlannedPoint(devices=1, nodes=1, strategy="ddp", kind="cpu", changes={})
SCALING = ScalingPlan(mode="weak", steps=10, points=[POINT])


@dataclass(frozen=True)
class Person:
    """Somebody who sends requests, as the test itself judges them."""

    name: str
    everywhere: str | None = None
    projects: dict[str, str] = field(default_factory=dict)
    scope: str = "admin"
    only: str | None = None
    """The project that their token is for."""

    @property
    def token(self) -> str:
        """The name of their token."""
        return " ".join(filter(None, (self.name, self.scope, self.only)))

    def role_in(self, project: str | None) -> str | None:
        """The role by the rules of the issue, written down anew."""
        if self.only is not None and project != self.only:
            return None
        if self.everywhere == "owner":
            return "owner"
        own = self.projects.get(project or "")
        if project == SECRET:
            return own
        return max((role for role in (own, self.everywhere) if role), key=RANKS.index, default=None)

    def keeps(self, things: Things) -> bool:
        """Whether they launched these things, and see and stop them though the project is hidden from them."""
        return self.name == things.by and bool(self.everywhere or self.projects) and self.only in (None, things.project)


RANKS = ["viewer", "member", "admin", "owner"]
MIA = Person("mia", "member")
PEOPLE = {
    "owner": Person(OWNER, "owner"),
    "base admin": Person("ada", "admin"),
    "member, whose the objects are": MIA,
    "another member": Person("max", "member"),
    "viewer": Person("vic", "viewer"),
    "admin of the private project": Person("pia", "viewer", {SECRET: "admin"}),
    "member of the private project": Person("sam", None, {SECRET: "member"}),
    "viewer of the private project": Person("vera", "member", {SECRET: "viewer"}),
    "who launched before it was private": Person("lou", "member"),
    "token to read of who launched before": Person("lou", "member", scope="read"),
    "token for the open project of who launched before": Person("lou", "member", only=OPEN),
    "nobody yet": Person("new", None),
    "token to read": replace(MIA, scope="read"),
    "token of an agent": replace(MIA, scope="mcp"),
    "token to launch": replace(MIA, scope="launch"),
    "token to act": replace(MIA, scope="act"),
    "token of an admin to manage": Person("ada", "admin", scope="admin"),
    "token of the owner to read": Person(OWNER, "owner", scope="read"),
    "token for the open project": replace(MIA, only=OPEN),
    "token of the owner for the open project": Person(OWNER, "owner", only=OPEN),
    "token for another project": replace(MIA, only="elsewhere"),
}


@dataclass
class Things:
    """One of each object in a project, of one person."""

    project: str
    by: str
    run: str = ""
    """Ended, with a checkpoint."""
    live: str = ""
    checkpoint: str = ""
    task: str = ""
    """Work on the checkpoint that no node has begun."""
    sweep: str = ""
    study: str = ""
    snapshot: str = ""
    alert: str = ""
    link: str = ""
    shared: str = ""
    """The token of the link."""
    view: str = ""
    bulk: str = ""
    """An action on many runs that the person began."""

    @property
    def marks(self) -> set[str]:
        """What nobody may read who does not see the project."""
        words = {self.project, f"{self.by}-trains", f"{self.by}-tag", f"{self.by}-metric", self.view}
        return words | {self.run, self.live, self.sweep, self.study, self.alert, self.link}


class Lab:
    """People and things on a running dashboard."""

    def __init__(self, dashboard: Running) -> None:
        self.dashboard, self.service = dashboard, dashboard.service
        self.node: FakeNode = dashboard.node(slots=8)
        self._add_people()
        self.things = [Things(OPEN, "mia"), Things(OPEN, "max"), Things(SECRET, "sam")]
        self.things.append(Things(SECRET, "lou"))
        for things in self.things:
            self._make(things)

    def _add_people(self) -> None:
        people = {person.name: person for person in PEOPLE.values() if person.name != OWNER}
        with self.service.store.write() as session:
            session.add(PrivateProject(project=SECRET, since=0.0, by=OWNER))
            session.add_all(User(name=name, role=one.everywhere, created_at=0.0) for name, one in people.items())
            session.flush()
            session.add_all(
                Membership(user=name, project=project, role=role)
                for name, one in people.items()
                for project, role in one.projects.items()
            )
        self.service.identities.forget()
        self._tokens = {person.token: self._token(person) for person in {p.token: p for p in PEOPLE.values()}.values()}

    def _token(self, person: Person) -> str:
        bounds = Bounds(1e9) if person.scope == "mcp" else None
        secret, wanted = new_secret(), TokenWanted(person.token, Scope(person.scope), person.only, bounds=bounds)
        access_tokens.make(self.service.store, person.name, wanted, hash_token(secret), self.service.clock())
        return secret

    def _make(self, things: Things) -> None:
        with self.acting(things):
            self._train(things)
            self._plan(things)
            self.renew(things)
            things.bulk = self._bulk(things)
        things.snapshot = self._snapshot(things)

    def _plan(self, things: Things) -> None:
        """A sweep and a study that have always ended: otherwise the dashboard might launch a run of theirs."""
        things.sweep, things.study, now = new_id(), new_id(), self.service.clock()
        plan = SweepPlan.model_validate({"parameters": {"lr": {"values": [0.1]}}, "metric": "loss"}).model_dump(
            mode="json"
        )
        both = {"spec": self.spec(things.project).model_dump(mode="json"), "by": things.by}
        both |= {"created_at": now, "ended_at": now}
        with self.service.store.write() as session:
            session.add(Study(id=things.sweep, kind="sweep", plan=plan, **both))
            session.add(Study(id=things.study, kind="scaling", plan=SCALING.model_dump(mode="json"), **both))

    def _bulk(self, things: Things) -> str:
        action = {"action": "tag", "tag": f"{things.by}-tag", "runs": [things.run]}
        headers = self.headers(Person(things.by))
        answer = self.dashboard.http.post("/api/bulk-actions", json=action, headers=headers)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def renew(self, things: Things) -> None:
        """Make those that a test may have deleted, again."""
        store, now = self.service.store, self.service.clock()
        with self.acting(things):
            things.alert = self._alert(things)
            link, things.shared = shared_links.make(store, [things.run], 7, now)
            things.link, things.view = link.id, f"{things.by} {things.project} view"
            saved_views.save(store, NamedView(name=things.view, project=things.project), now)

    def _alert(self, things: Things) -> str:
        from db.alerts import alerts

        return alerts.create(self.service.store, "hung", "browser", None, self.service.clock(), things.project)

    def _train(self, things: Things) -> None:
        """Launch a run that ends, with points and a checkpoint, and one that is live."""
        things.run = self.service.launch(self.spec(things.project, f"{things.by}-trains"))
        (assignment,) = [one for one in self.node.client.desired_state(None, 0).assignments if one.run_id == things.run]
        task = self._task(assignment)
        self.node.report(task, "running")
        self.node.log_points(task, 0, **{f"{things.by}-metric": [(1, 0.5, 1.0), (2, 0.25, 2.0)]})
        self.node.append(task, "logs/rank0.out", 0, 0, f"{things.by} says\n".encode())
        things.checkpoint = str(self.node.store_checkpoint(task, things.by.encode()))
        self.node.report(task, "succeeded")
        things.task = str(self.service.checkpoint_tasks.merge(int(things.checkpoint), "safetensors").id)
        things.live = self.service.launch(self.spec(things.project, f"{things.by}-trains"))

    @staticmethod
    def _task(assignment: Any) -> Any:
        from worker.session.client import TaskRef

        return TaskRef(assignment.fence, assignment.node_rank)

    def _snapshot(self, things: Things) -> str:
        content = things.by.encode() * 100
        sha256 = hashlib.sha256(content).hexdigest()
        snapshots.keep(self.service.store, sha256, len(content), 1, {}, self.service.clock())
        self.service.snapshots.path(sha256).parent.mkdir(parents=True, exist_ok=True)
        self.service.snapshots.path(sha256).write_bytes(content)
        with self.service.store.write() as session:
            run = session.get_one(Run, things.run)
            run.spec = {**run.spec, "snapshot": sha256}
        return sha256

    @staticmethod
    def spec(project: str, name: str = "") -> RunSpec:
        return RunSpec(target="image_classifier", gpus_per_node=1, project=project, name=name)

    @contextmanager
    def acting(self, things: Things) -> Iterator[None]:
        """Act as the person whose the things are, who was a member of the project when they made them."""
        rights = self.service.identities.rights(things.by)
        assert rights is not None
        was_member = replace(rights, in_projects={things.project: Role.MEMBER})
        with acting.acting(rights if rights.sees(things.project) else was_member):
            yield

    def headers(self, person: Person) -> dict[str, str]:
        """What the person's requests carry."""
        return {"Authorization": f"Bearer {self._tokens[person.token]}"}

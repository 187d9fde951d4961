"""What the API and the pages share: the open store, the clock, and the wishes people may have."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from dashboard.access import Credentials, make_private_directory
from dashboard.clock import Clock, Lease
from dashboard.files import Files
from dashboard.live import Hub
from dashboard.preview import check_target, with_recipe_defaults
from dashboard.settings import Settings
from db import nodes, progress, queries, requests, scheduling
from db.engine import Store
from db.spec import Assignment, RunSpec
from db.states import LIVE_STATES, NodeFacts, NodeLoad
from db.views import NodeView, RunView

log = logging.getLogger("rankzero")
SEEN_EVERY_S = 2.0
"""A node's last word is written down at most this often."""
FIGURES_EVERY_S = 0.5
LEASE_S = 10.0
PLACEABLE_WITHIN_S = 15.0
"""Only nodes heard of so recently are given new work."""


class Service:
    """One dashboard's state; safe to use from any thread."""

    def __init__(self, settings: Settings, store: Store, clock: Clock | None = None) -> None:
        self.settings = settings
        self.store = store
        self.clock = clock or Clock()
        self.lease = Lease(self.clock())
        self.hub = Hub()
        self.files = Files(settings.data / "files", settings.reserve_bytes)
        self.credentials = Credentials.load_or_create(settings.data)
        self.registry = NodeRegistry(store, self.clock)
        self.uploads: dict[int, object] = {}
        """Which request is bringing which checkpoint."""
        self._scheduling = threading.Lock()
        self._run_of_fence: dict[int, str] = {}
        self._figures_sent: dict[str, float] = {}
        self._silent_runs: set[str] = set()

    @classmethod
    def open(cls, settings: Settings) -> Service:
        """Open (or make) the data directory and the store in it."""
        make_private_directory(settings.data)
        where = settings.store or str(settings.data / "rankzero.db")
        return cls(settings, Store.open(where, backups=settings.data / "backups"))

    def close(self) -> None:
        """Let go of the store."""
        self.hub.close()
        self.store.close()

    def submit(self, spec: RunSpec) -> RunView:
        """Queue a run. Raises db.requests.Refused."""
        check_target(spec, self.nodes())
        run_id = requests.submit(self.store, with_recipe_defaults(spec), self.clock())
        log.info("run %s submitted (%s)", run_id, spec.target)
        self.schedule()
        return self.run(run_id)

    def stop(self, run_id: str) -> RunView:
        """Ask a run to end."""
        requests.request_stop(self.store, run_id, self.clock())
        return self._wished(run_id)

    def resume(self, run_id: str, checkpoint: str | None = None) -> RunView:
        """Open a new attempt from a checkpoint, the latest complete one by default."""
        requests.resume(self.store, run_id, self.clock(), checkpoint)
        return self._wished(run_id)

    def delete(self, run_id: str) -> RunView:
        """Forget an ended run and all its files; returns what it was."""
        run = self.run(run_id)
        files, checkpoints = requests.delete(self.store, run_id)
        self.files.remove(files, checkpoints)
        self.hub.publish(run_id, {"type": "deleted"})
        log.info("run %s deleted", run_id)
        return run

    def run(self, run_id: str) -> RunView:
        """A run, whole. Raises db.requests.NoSuchRun."""
        view = queries.run(self.store, run_id, self.now_for_contact())
        if view is None:
            raise requests.NoSuchRun(f"There is no run {run_id!r}.")
        return view

    def nodes(self) -> list[NodeView]:
        """All nodes there ever were."""
        return queries.nodes(self.store, self.now_for_contact())

    def schedule(self) -> None:
        """Give free devices to runs that wait, and tell everybody concerned."""
        with self._scheduling:
            changed = scheduling.place_queue(self.store, self.clock(), PLACEABLE_WITHIN_S)
        if changed:
            self.hub.wishes_changed()
        for run_id in changed:
            self.run_changed(run_id)

    def run_changed(self, run_id: str) -> None:
        """Something about the run is different: those who watch get it anew."""
        self.hub.publish(run_id, {"type": "run"})
        self.hub.publish(run_id, {"type": "history"})

    def part_changed(self, fence: int, ended: bool) -> None:
        """A node reported on its part of an attempt: other nodes and those who watch may need to know."""
        self.hub.wishes_changed()
        if run_id := self.run_of(fence):
            self.run_changed(run_id)
        if ended:
            self.schedule()

    def file_grew(self, fence: int, file_id: int) -> None:
        """A log has more bytes."""
        if run_id := self.run_of(fence):
            self.hub.publish(run_id, {"type": "log", "file_id": file_id})

    def figures_changed(self, run_id: str) -> None:
        """New points: the figures are sent anew, a few times a second at most."""
        now = self.clock()
        if now - self._figures_sent.get(run_id, 0.0) >= FIGURES_EVERY_S:
            self._figures_sent[run_id] = now
            self.hub.publish(run_id, {"type": "run"})

    def run_of(self, fence: int) -> str | None:
        """The run an attempt belongs to."""
        if fence not in self._run_of_fence and (run_id := queries.run_of_attempt(self.store, fence)):
            self._run_of_fence[fence] = run_id
        return self._run_of_fence.get(fence)

    def tick(self) -> None:
        """Once a second: place the queue, notice who fell silent and who is heard again."""
        now = self.clock()
        self.lease.tick(now)
        self.schedule()
        live = queries.runs(self.store, self.now_for_contact(), LIVE_STATES)
        silent = {run.id: run for run in live if run.lost_contact}
        for run in live:
            if (run.id in silent) != (run.id in self._silent_runs):
                text = "no contact with a node" if run.id in silent else "contact again"
                progress.contact_changed(self.store, run.id, run.attempt, now, text)
                self.run_changed(run.id)
        for run_id in self.hub.watched_runs():
            if run_id in silent:
                self.hub.publish(run_id, {"type": "run"})
        self._silent_runs = set(silent)

    def assignments(self, node_id: str) -> tuple[list[Assignment], bool]:
        """All a node should be running, and whether anybody looks at any of it live."""
        wished = queries.assignments(self.store, node_id)
        return wished, any(self.hub.watched(a.run_id) for a in wished)

    def now_for_contact(self) -> float:
        """The time by which silence is judged: just awake, this process suspects itself and not its nodes."""
        now = self.clock()
        if now - self.lease.awake_since > LEASE_S:
            return now
        return queries.last_word(self.store) or now

    def _wished(self, run_id: str) -> RunView:
        self.hub.wishes_changed()
        self.schedule()
        self.run_changed(run_id)
        return self.run(run_id)


class NodeRegistry:
    """Whose token is it, and when was the node last heard of; both asked with every request of a worker."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[bytes, str] = {}
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    def node_of_token(self, token: bytes) -> str | None:
        """The node that shows this token, or None."""
        if (node_id := self._known.get(token)) is not None:
            return node_id
        try:
            node_id = nodes.node_of_token(self._store, token.decode("ascii"))
        except UnicodeDecodeError:
            return None
        if node_id is not None:
            self._known[token] = node_id
        return node_id

    def register(self, facts: NodeFacts, node_id: str | None) -> nodes.Registration:
        """Take a worker in; its earlier token ends."""
        registration = nodes.register_node(self._store, facts, node_id, self._clock())
        with self._lock:
            self._known = {t: n for t, n in self._known.items() if n != registration.node_id}
        log.info("node %s registered as %s", facts.name, registration.node_id)
        return registration

    def is_due(self, node_id: str) -> bool:
        """Should the node's last word be written down again?"""
        now = self._clock()
        if now - self._seen.get(node_id, float("-inf")) < SEEN_EVERY_S:
            return False
        self._seen[node_id] = now
        return True

    def seen(self, node_id: str, load: NodeLoad | None = None) -> None:
        """The node spoke."""
        self._seen[node_id] = self._clock()
        nodes.node_seen(self._store, node_id, self._clock(), load)


_current: Service | None = None


def use(service: Service | None) -> None:
    """Make this the service the pages of this process talk to."""
    global _current
    _current = service


def current() -> Service:
    """The service of this process: pages run inside the server and share it."""
    if _current is None:
        raise RuntimeError("The pages need a running dashboard: start it with `rankzero dashboard`.")
    return _current


def data_files(data: Path) -> Path:
    """Where the server keeps mirrored files and checkpoints."""
    return data / "files"

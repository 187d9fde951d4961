"""Several dashboards on one PostgreSQL store: viewers at each of them see changes made at any other.

Messages carry only what changed (a run's id and the kind of change); the receivers read points from the store. A
SQLite store has a single dashboard and needs none of this."""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Protocol

from sqlalchemy.exc import SQLAlchemyError

from dashboard.live.hub import series_message
from db.channel import LARGEST_MESSAGE_BYTES, Channel
from db.engine import Store
from db.metrics import points
from domain.clock import SYSTEM_CLOCK, Clock


class DashboardPeers:
    """This dashboard's channel to the others; safe to use from any thread."""

    def __init__(self, store: Store, hub: Listeners, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store, self._hub, self._clock = store, hub, clock
        self._channel = Channel(store)
        self._name = secrets.token_hex(4)
        self._condition = threading.Condition()
        self._changed_runs: dict[str, set[str]] = {}
        self._registered_nodes: set[str] = set()
        self._nodes_to_wake: set[str] = set()
        self._wakes_all = False
        self._runs_to_read: set[str] = set()
        self._announced: dict[str, float] = {}
        self._watched_elsewhere: dict[str, float] = {}
        self._point_counts: dict[str, dict[int, int]] = {}
        self._is_closed = False
        self._threads: list[threading.Thread] = []
        self.on_run: Callable[[str], None] = lambda run_id: None
        """Called when a run changed elsewhere, before its viewers are notified."""
        self.on_node: Callable[[str], None] = lambda node_id: None
        """Called when a node has registered elsewhere."""

    @property
    def leads(self) -> bool:
        """Whether this dashboard is the one that records events that all of them observe."""
        return self._channel.leads

    def start(self) -> None:
        """Start to listen and to announce."""
        listen, announce = self._listen, self._announce_until_closed
        self._threads = [threading.Thread(target=loop, daemon=True) for loop in (listen, announce)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop both threads and release the store."""
        self._channel.stop()
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        for thread in self._threads:
            thread.join(CLOSE_WITHIN_S)

    def watched(self, run_id: str) -> bool:
        """Whether anybody looks at this run at another dashboard."""
        return self._watched_elsewhere.get(run_id, float("-inf")) > self._clock.now()

    def watching_changed(self) -> None:
        """Note that somebody here started or stopped to look at a run."""
        watched = set(self._hub.watched_runs())
        with self._condition:
            self._point_counts = {run_id: counts for run_id, counts in self._point_counts.items() if run_id in watched}
            self._announced = {run_id: at for run_id, at in self._announced.items() if run_id in watched}
            self._condition.notify_all()

    def follow(self, run_id: str) -> None:
        """Deliver new points of the run from now on; call it before reading the run's points."""
        if run_id not in self._point_counts:
            counts = points.point_counts(self._store, run_id)
            with self._condition:
                self._point_counts.setdefault(run_id, counts)

    def points_arrived(self, run_id: str) -> None:
        """Note that this dashboard stored points of a run."""
        with self._condition:
            self._runs_to_read.add(run_id)
            self._condition.notify_all()
        self.announce_change(run_id, POINTS)

    def announce_change(self, run_id: str, kind: str) -> None:
        """Announce that something about a run has changed."""
        if self.watched(run_id):
            with self._condition:
                self._changed_runs.setdefault(run_id, set()).add(kind)
                self._condition.notify_all()

    def announce_desired_state(self, nodes: Collection[str] | None) -> None:
        """Announce that the desired state of these nodes (None: of any) has changed."""
        with self._condition:
            self._nodes_to_wake |= set(nodes or ())
            self._wakes_all |= nodes is None or len(self._nodes_to_wake) > MAX_NAMED_NODES
            self._condition.notify_all()

    def announce_registration(self, node_id: str) -> None:
        """Announce that a node has a new token, so that its old one ends everywhere."""
        with self._condition:
            self._registered_nodes.add(node_id)
            self._condition.notify_all()

    # -- listening -----------------------------------------------------------------------------

    def _listen(self) -> None:
        self._channel.listen(self._receive, self._refresh_all)

    def _receive(self, text: str) -> None:
        try:
            message = json.loads(text)
        except ValueError:
            message = None
        if not isinstance(message, dict):  # another program uses the channel's name in this database
            log.warning("a message on the dashboards' channel was not sent by a dashboard: %.80r", text)
        elif message.get("from") != self._name:
            self._apply(message)

    def _apply(self, message: dict[str, Any]) -> None:
        for node_id in message.get("nodes", ()):
            self.on_node(node_id)
        if message.get("wake all"):
            self._hub.wake_workers()
        self._hub.wake_workers(message.get("wake", ()))
        self._note_watched_runs(message.get("watching", ()))
        for run_id, kinds in message.get("runs", {}).items():
            self._changed_elsewhere(run_id, kinds)

    def _note_watched_runs(self, run_ids: Iterable[str]) -> None:
        """Send everything to new watchers, who may have missed something, and make workers report points sooner."""
        new = [run_id for run_id in run_ids if not self.watched(run_id)]
        until = self._clock.now() + WATCHED_FOR_S
        self._watched_elsewhere |= dict.fromkeys(run_ids, until)
        for run_id in new:
            for kind in EVERYTHING:
                self.announce_change(run_id, kind)
        if new:
            self._hub.wake_workers_of(new)

    def _changed_elsewhere(self, run_id: str, kinds: Iterable[str]) -> None:
        self.on_run(run_id)
        for kind in kinds:
            if kind != POINTS:
                self._hub.deliver(run_id, {"type": kind})
        if POINTS in kinds:
            with self._condition:
                self._runs_to_read.add(run_id)
                self._condition.notify_all()

    def _refresh_all(self) -> None:
        """Refresh everything after a silence: anything may have changed meanwhile."""
        with self._condition:
            self._announced.clear()
            self._condition.notify_all()
        self._hub.wake_workers()
        for run_id in self._hub.watched_runs():
            self._changed_elsewhere(run_id, EVERYTHING)

    # -- announcing ----------------------------------------------------------------------------

    def _announce_until_closed(self) -> None:
        while not self._is_closed:
            with self._condition:
                self._condition.wait_for(self._is_due, ANNOUNCE_EVERY_S)
            self._clock.pause(BATCH_S)
            try:
                self._send()
            except SQLAlchemyError as error:  # when the store is back, all dashboards refresh
                log.debug("not announced: %s", error)
                self._clock.pause(1.0)
            except Exception:  # this thread must live as long as the dashboard
                log.exception("the other dashboards could not be notified")
                self._clock.pause(1.0)

    def _is_due(self) -> bool:
        waiting = (
            self._changed_runs or self._runs_to_read or self._registered_nodes or self._nodes_to_wake or self._wakes_all
        )
        return bool(waiting) or self._is_closed or bool(self._unannounced())

    def _send(self) -> None:
        with self._condition:
            runs, self._changed_runs = self._changed_runs, {}
            registered_nodes, self._registered_nodes = self._registered_nodes, set()
            nodes_to_wake, self._nodes_to_wake = self._nodes_to_wake, set()
            wakes_all, self._wakes_all = self._wakes_all, False
            runs_to_read, self._runs_to_read = self._runs_to_read, set()
            watching = self._unannounced()
            self._announced |= dict.fromkeys(watching, self._clock.now())
        for message in self._messages(
            runs, registered_nodes, set() if wakes_all else nodes_to_wake, wakes_all, watching
        ):
            self._channel.send(message)
        for run_id in runs_to_read:
            self._deliver_points(run_id)

    def _unannounced(self) -> list[str]:
        due = self._clock.now() - ANNOUNCE_EVERY_S
        return [run for run in self._hub.watched_runs() if self._announced.get(run, float("-inf")) <= due]

    def _messages(
        self,
        runs: dict[str, set[str]],
        registered_nodes: set[str],
        nodes_to_wake: set[str],
        wakes_all: bool,
        watching: list[str],
    ) -> Iterator[str]:
        if not (runs or registered_nodes or nodes_to_wake or wakes_all or watching):
            return
        size = ENTRIES_PER_MESSAGE
        longest = max(len(runs), len(registered_nodes), len(nodes_to_wake), len(watching), 1)
        for start in range(0, longest, size):
            message: dict[str, object] = {"from": self._name}
            message["runs"] = {run: sorted(kinds) for run, kinds in list(runs.items())[start : start + size]}
            message["nodes"] = sorted(registered_nodes)[start : start + size]
            message["watching"] = watching[start : start + size]
            message["wake"] = sorted(nodes_to_wake)[start : start + size]
            message["wake all"] = wakes_all and start == 0
            text = json.dumps({name: value for name, value in message.items() if value})
            assert len(text) < LARGEST_MESSAGE_BYTES
            yield text

    def _deliver_points(self, run_id: str) -> None:
        sent_counts = self._point_counts.get(run_id)
        if sent_counts is None:
            return
        batches, counts = points.points_since(self._store, run_id, sent_counts)
        with self._condition:
            if run_id in self._point_counts:
                self._point_counts[run_id] = counts
        # A later life goes in a message of its own: one message has each series once.
        for attempt, life in sorted({(batch.attempt, batch.life) for batch in batches}):
            chosen = [batch for batch in batches if (batch.attempt, batch.life) == (attempt, life)]
            changes = [(batch.series, batch.points, life > 0 and not batch.is_begun) for batch in chosen]
            self._hub.deliver(run_id, series_message(attempt, changes))


log = logging.getLogger("rankzero")
POINTS = "points"
EVERYTHING = (POINTS, "run", "history", "log", "checkpoints")
ANNOUNCE_EVERY_S = 4.0
WATCHED_FOR_S = 10.0
"""Seconds for which a run counts as watched elsewhere after an announcement."""
BATCH_S = 0.03
"""Seconds within which changes are announced together."""
ENTRIES_PER_MESSAGE = 60
MAX_NAMED_NODES = 600
"""To wake more nodes than this, all are woken."""
CLOSE_WITHIN_S = 2.0
"""Seconds after which the dashboard ends even when the store does not answer."""


class Listeners(Protocol):
    """The recipients of changes at this dashboard: the hub."""

    def deliver(self, run_id: str, message: dict[str, object]) -> None:
        """Send a message to the viewers of the run here."""

    def watched_runs(self) -> list[str]:
        """The ids of the runs that somebody looks at here."""

    def wake_workers(self, nodes: Collection[str] | None = None) -> None:
        """Wake the workers of these nodes (None: of all) that poll this dashboard."""

    def wake_workers_of(self, run_ids: Iterable[str]) -> None:
        """Wake the workers of these runs' nodes that poll this dashboard."""

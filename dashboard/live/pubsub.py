"""Several dashboards on one PostgreSQL: what happens at one of them is seen at the others as it happens.

Only what changed travels (a run's id and the kind of change); points are read from the store by those who show
them. A store in a file has one dashboard and needs nothing of this."""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Protocol

from sqlalchemy.exc import SQLAlchemyError

from dashboard.live.messages import series_message
from db.channel import LARGEST_MESSAGE_BYTES, Channel
from db.engine import Store
from db.metrics import new_points

log = logging.getLogger("rankzero")
POINTS = "points"
EVERYTHING = (POINTS, "run", "history", "log", "checkpoints")
WATCH_AGAIN_S = 4.0
WATCHED_FOR_S = 10.0
"""A run counts as watched elsewhere for so long after somebody said so."""
GATHER_S = 0.03
"""Changes within so short a time are told together."""
ENTRIES_PER_MESSAGE = 60
MOST_NAMED = 600
"""Nodes; to wake more of them, all are woken."""
CLOSE_WITHIN_S = 2.0
"""A store that does not answer must not keep the dashboard from ending."""


class Listeners(Protocol):
    """Those at this dashboard who want to know: the hub."""

    def deliver(self, run_id: str, message: dict[str, object]) -> None:
        """Tell who watches the run here."""

    def watched_runs(self) -> list[str]:
        """The runs somebody looks at here."""

    def wake_workers(self, nodes: Collection[str] | None = None) -> None:
        """Let the workers of these nodes (None: of all) that wait here look again."""

    def wake_workers_of(self, run_ids: Iterable[str]) -> None:
        """Let those that have to do with these runs look again."""


class DashboardPeers:
    """This dashboard's line to the others; safe to use from any thread."""

    def __init__(self, store: Store, hub: Listeners) -> None:
        self._store, self._hub = store, hub
        self._channel = Channel(store)
        self._name = secrets.token_hex(4)
        self._changed = threading.Condition()
        self._to_tell: dict[str, set[str]] = {}
        self._nodes_to_tell: set[str] = set()
        self._woken: set[str] = set()
        self._all_woken = False
        self._to_read: set[str] = set()
        self._announced: dict[str, float] = {}
        self._watched_elsewhere: dict[str, float] = {}
        self._known: dict[str, dict[int, int]] = {}
        self._is_closed = False
        self._threads: list[threading.Thread] = []
        self.on_run: Callable[[str], None] = lambda run_id: None
        """Called before those who watch are told that the run changed elsewhere."""
        self.on_node: Callable[[str], None] = lambda node_id: None
        """Called when a node has registered elsewhere."""

    @property
    def leads(self) -> bool:
        """Is this dashboard the one that writes down what all of them see?"""
        return self._channel.leads

    def start(self) -> None:
        """Begin to listen and to tell."""
        listen, tell = self._listen, self._tell_until_closed
        self._threads = [threading.Thread(target=work, daemon=True) for work in (listen, tell)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Let go of the store."""
        self._channel.stop()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(CLOSE_WITHIN_S)

    def watched(self, run_id: str) -> bool:
        """Does anybody look at this run at another dashboard?"""
        return self._watched_elsewhere.get(run_id, float("-inf")) > time.monotonic()

    def watching_changed(self) -> None:
        """Somebody here began to look at a run, or stopped."""
        here = set(self._hub.watched_runs())
        with self._changed:
            self._known = {run_id: counts for run_id, counts in self._known.items() if run_id in here}
            self._announced = {run_id: at for run_id, at in self._announced.items() if run_id in here}
            self._changed.notify_all()

    def follow(self, run_id: str) -> None:
        """From now on new points of the run are delivered; to be called before its first picture is read."""
        if run_id not in self._known:
            counts = new_points.counts(self._store, run_id)
            with self._changed:
                self._known.setdefault(run_id, counts)

    def points_arrived(self, run_id: str) -> None:
        """Points of a run were stored by this dashboard."""
        with self._changed:
            self._to_read.add(run_id)
            self._changed.notify_all()
        self.tell(run_id, POINTS)

    def tell(self, run_id: str, kind: str) -> None:
        """Something about a run is different."""
        if self.watched(run_id):
            with self._changed:
                self._to_tell.setdefault(run_id, set()).add(kind)
                self._changed.notify_all()

    def tell_wishes(self, nodes: Collection[str] | None) -> None:
        """What these nodes (None: any) should run is different."""
        with self._changed:
            self._woken |= set(nodes or ())
            self._all_woken |= nodes is None or len(self._woken) > MOST_NAMED
            self._changed.notify_all()

    def tell_registered(self, node_id: str) -> None:
        """A node has a new token; the old one ends everywhere."""
        with self._changed:
            self._nodes_to_tell.add(node_id)
            self._changed.notify_all()

    # -- listening -----------------------------------------------------------------------------

    def _listen(self) -> None:
        self._channel.listen(self._heard, self._look_again)

    def _heard(self, text: str) -> None:
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        if not isinstance(said, dict):  # somebody else uses the channel's name in this database
            log.warning("a message on the dashboards' channel is not of a dashboard: %.80r", text)
        elif said.get("from") != self._name:
            self._take_in(said)

    def _take_in(self, said: dict[str, Any]) -> None:
        for node_id in said.get("nodes", ()):
            self.on_node(node_id)
        if said.get("wake all"):
            self._hub.wake_workers()
        self._hub.wake_workers(said.get("wake", ()))
        self._note_watched(said.get("watching", ()))
        for run_id, kinds in said.get("runs", {}).items():
            self._changed_elsewhere(run_id, kinds)

    def _note_watched(self, run_ids: Iterable[str]) -> None:
        """Who begins to watch may have missed something meanwhile, and wants points sooner."""
        new = [run_id for run_id in run_ids if not self.watched(run_id)]
        until = time.monotonic() + WATCHED_FOR_S
        self._watched_elsewhere |= dict.fromkeys(run_ids, until)
        for run_id in new:
            for kind in EVERYTHING:
                self.tell(run_id, kind)
        if new:
            self._hub.wake_workers_of(new)

    def _changed_elsewhere(self, run_id: str, kinds: Iterable[str]) -> None:
        self.on_run(run_id)
        for kind in kinds:
            if kind != POINTS:
                self._hub.deliver(run_id, {"type": kind})
        if POINTS in kinds:
            with self._changed:
                self._to_read.add(run_id)
                self._changed.notify_all()

    def _look_again(self) -> None:
        """Nothing was heard for a while: whatever is shown may have changed."""
        with self._changed:
            self._announced.clear()
            self._changed.notify_all()
        self._hub.wake_workers()
        for run_id in self._hub.watched_runs():
            self._changed_elsewhere(run_id, EVERYTHING)

    # -- telling -------------------------------------------------------------------------------

    def _tell_until_closed(self) -> None:
        while not self._is_closed:
            with self._changed:
                self._changed.wait_for(self._has_something, WATCH_AGAIN_S)
            time.sleep(GATHER_S)
            try:
                self._pass_on()
            except SQLAlchemyError as error:  # when the store is back, everybody looks again
                log.debug("not told: %s", error)
                time.sleep(1.0)
            except Exception:  # this thread must live as long as the dashboard
                log.exception("the other dashboards could not be told")
                time.sleep(1.0)

    def _has_something(self) -> bool:
        waiting = self._to_tell or self._to_read or self._nodes_to_tell or self._woken or self._all_woken
        return bool(waiting) or self._is_closed or bool(self._unannounced())

    def _pass_on(self) -> None:
        with self._changed:
            runs, self._to_tell = self._to_tell, {}
            nodes, self._nodes_to_tell = self._nodes_to_tell, set()
            woken, self._woken = self._woken, set()
            all_woken, self._all_woken = self._all_woken, False
            to_read, self._to_read = self._to_read, set()
            watching = self._unannounced()
            self._announced |= dict.fromkeys(watching, time.monotonic())
        for message in self._messages(runs, nodes, set() if all_woken else woken, all_woken, watching):
            self._channel.send(message)
        for run_id in to_read:
            self._deliver_points(run_id)

    def _unannounced(self) -> list[str]:
        due = time.monotonic() - WATCH_AGAIN_S
        return [run for run in self._hub.watched_runs() if self._announced.get(run, float("-inf")) <= due]

    def _messages(
        self,
        runs: dict[str, set[str]],
        nodes: set[str],
        woken: set[str],
        all_woken: bool,
        watching: list[str],
    ) -> Iterator[str]:
        if not (runs or nodes or woken or all_woken or watching):
            return
        size = ENTRIES_PER_MESSAGE
        longest = max(len(runs), len(nodes), len(woken), len(watching), 1)
        for start in range(0, longest, size):
            said: dict[str, object] = {"from": self._name}
            said["runs"] = {run: sorted(kinds) for run, kinds in list(runs.items())[start : start + size]}
            said["nodes"] = sorted(nodes)[start : start + size]
            said["watching"] = watching[start : start + size]
            said["wake"] = sorted(woken)[start : start + size]
            said["wake all"] = all_woken and start == 0
            text = json.dumps({name: value for name, value in said.items() if value})
            assert len(text) < LARGEST_MESSAGE_BYTES
            yield text

    def _deliver_points(self, run_id: str) -> None:
        known = self._known.get(run_id)
        if known is None:
            return
        fresh, counts = new_points.points_since(self._store, run_id, known)
        with self._changed:
            if run_id in self._known:
                self._known[run_id] = counts
        for attempt in sorted({each.attempt for each in fresh}):
            changes = [(each.series, each.points) for each in fresh if each.attempt == attempt]
            self._hub.deliver(run_id, series_message(attempt, changes))

"""The session of a worker or gateway with the server: registration, polling and load reports, retried for ever."""

from __future__ import annotations

import json
import logging
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from domain import protocol
from domain.clock import SYSTEM_CLOCK, Clock
from domain.environments.wheels import WheelFile
from domain.messages import NodeFacts, NodeLoad
from worker.node.state_files import write_whole
from worker.session.answers import DesiredState, Registration
from worker.session.client import Client
from worker.session.failures import Ended, RequestRefused, ServerAway, Unauthorized
from worker.session.options import NO_TOKEN

log = logging.getLogger("worker")
SILENT_S = 4.0
"""So long a server may take to answer for the first time before that is said: a name may be looked up for long."""
Kind = Literal["node", "gateway"]
"""The word for the program in messages."""


class SessionOwner(ABC):
    """The program that a session belongs to. Its methods are called by the session's two threads."""

    fatal: str | None = None
    """Why the program cannot continue, in a sentence."""

    @abstractmethod
    def facts(self) -> NodeFacts:
        """The facts to register with."""

    @abstractmethod
    def load(self) -> NodeLoad:
        """A sample of the node's load."""

    @abstractmethod
    def on_registered(self, registration: Registration, *, may_start: bool) -> None:
        """Take up a registration; `may_start`: the server has the same protocol version."""

    @abstractmethod
    def on_desired_state(self, desired: DesiredState) -> None:
        """Take up the newest desired state."""

    def on_refused(self, message: str) -> None:
        """Handle a refused registration, which is retried: end the program."""
        self.fatal = message

    def on_removed(self, message: str) -> None:
        """Handle the removal or takeover of the node, repeated until it is no longer so: end the program."""
        self.fatal = message

    def on_wheels_wanted(self, wheels: Sequence[WheelFile]) -> None:  # noqa: B027
        """Fetch wheels for nodes that cannot."""

    def on_load_reported(self) -> None:  # noqa: B027
        """Note that the server has answered."""


class Identity(Protocol):
    """A node's name and tokens, as its data directory keeps them; most are `NodeIdentity`."""

    file: Path
    values: dict[str, Any]
    name: str
    join_token: str


class ServerSession:
    """Run `poll` and `report_load` in one thread each, until `close`."""

    def __init__(
        self, client: Client, identity: Identity, owner: SessionOwner, kind: Kind, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._client, self._identity, self._owner, self._kind, self._clock = client, identity, owner, kind, clock
        self._log = logging.getLogger("worker" if kind == "node" else kind)
        self._memory = StoreMemory(client, identity.file, identity.values)
        self._notices = Notices()
        self._poll_wait_s, self._heartbeat_s = 20.0, 5.0
        self._was_registered = self._is_told_away = False
        self.registered, self._was_answered, self._closed = threading.Event(), threading.Event(), threading.Event()

    @property
    def is_closed(self) -> bool:
        """Whether the session is over."""
        return self._closed.is_set()

    def close(self) -> None:
        """Let both loops return after their current request."""
        self._closed.set()

    def poll(self) -> None:
        """Register, then follow the desired state."""
        version: str | None = None
        backoff = Backoff(FIRST_GROWTH)
        self._clock.start("silence", self._tell_silence)
        while not self.is_closed:
            try:
                if not self.registered.is_set():
                    self._register()
                    version = None
                desired = self._client.desired_state(version, self._poll_wait_s)
            except ServerAway as error:
                self._handle_failure(error)
                self._clock.pause(backoff.failed(self._clock.now()), self._closed)
            else:
                self._was_answered.set()
                self._tell_back()
                backoff = Backoff()
                if self._is_of_our_store(desired):
                    version = desired.version
                    self._notices.replace("unreadable", desired.unreadable)
                    self._owner.on_desired_state(desired)

    def report_load(self) -> None:
        """Report the load at every heartbeat while registered."""
        while not self.is_closed:
            self._clock.pause(1.0, self.registered)
            if self.registered.is_set():
                self._report_load_once()
                self._clock.pause(self._heartbeat_s, self._closed)

    def _report_load_once(self) -> None:
        try:
            wheels = self._client.load(self._notices.add_to(self._owner.load()))
            self._owner.on_load_reported()
            self._owner.on_wheels_wanted(wheels)
        except Ended as error:
            self._handle_failure(error)
        except (ServerAway, RequestRefused) as error:
            self._log.debug("the load was not accepted: %s", error)

    def _handle_failure(self, error: ServerAway) -> None:
        if isinstance(error, Ended):
            self.registered.clear()
            self._owner.on_removed(str(error))
        elif isinstance(error, Unauthorized):
            self.registered.clear()
            self._log.info("the server asks this %s to register: %s", self._kind, error)
        elif not self._is_told_away:
            self._tell_away(error)
        else:
            self._log.debug("the poll failed: %s", error)

    def _tell_silence(self) -> None:
        if not (self._clock.pause(SILENT_S, self._was_answered) or self._is_told_away):
            self._tell_away("it has not answered")

    def _tell_away(self, reason: object) -> None:
        """Say once, not at each try, that the server does not answer."""
        self._is_told_away = True
        self._log.warning(
            "%s cannot be reached: %s. Check the address and the network; it is retried until it answers.",
            self._client.url, str(reason).rstrip("."),
        )  # fmt: skip

    def _tell_back(self) -> None:
        if self._is_told_away:
            self._is_told_away = False
            self._log.info("%s answers", self._client.url)

    def _is_of_our_store(self, desired: DesiredState) -> bool:
        if self._memory.accept(desired):
            return True
        self._log.warning("the dashboard's store has changed: this %s registers with it", self._kind)
        self.registered.clear()
        return False

    def _register(self) -> None:
        try:
            registration = self._join(self._owner.facts())
        except (Unauthorized, RequestRefused) as error:
            self._owner.on_refused(f"{self._client.url} refuses this {self._kind}: {error}")
            raise ServerAway(str(error)) from error
        identity = {"node_id": registration.node_id, "token": registration.token, "name": self._identity.name}
        self._identity.values |= identity
        self._memory.registered()
        warning = protocol.warning(registration.protocol)
        self._notices.replace("protocol", [warning] if warning else [])
        self._poll_wait_s, self._heartbeat_s = registration.poll_wait_s, registration.heartbeat_s
        self._owner.on_registered(registration, may_start=warning is None)
        self._was_registered = True
        self.registered.set()

    def _join(self, facts: NodeFacts) -> Registration:
        """Register with the node's own token, or with the join token if the server no longer knows that."""
        node_id = self._identity.values.get("node_id")
        if self._client.token:
            try:
                return self._client.register(facts, node_id, self._client.token, self._was_registered)
            except Unauthorized:
                if not self._identity.join_token:
                    raise Unauthorized(f"it no longer knows this node's own token, and {NO_TOKEN}") from None
        return self._client.register(facts, node_id, self._identity.join_token, self._was_registered)


class Notices:
    """The current problems of this node by subject, sent with every load sample and shown on the Nodes page.

    Thread-safe; a sentence is logged once and sent until it is removed.
    """

    def __init__(self) -> None:
        self._sentences: dict[str, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def replace(self, subject: str, sentences: Sequence[str]) -> None:
        """Replace a subject's sentences; an empty list removes them."""
        with self._lock:
            new_sentences = [sentence for sentence in sentences if sentence not in self._sentences.get(subject, ())]
            self._sentences[subject] = tuple(sentences)
        for sentence in new_sentences:
            log.warning("%s", sentence)

    def add_to(self, load: NodeLoad) -> NodeLoad:
        """Add all sentences to the notice of a load sample."""
        with self._lock:
            notices = [sentence for sentences in self._sentences.values() for sentence in sentences]
        load.notice = " ".join(filter(None, [load.notice, *notices])) or None
        return load


# Remembers the store a node works for, to detect that an older copy has replaced it.


class StoreMemory:
    """The store's identity and the newest attempt it assigned to this node, stored in the identity file."""

    def __init__(self, client: Client, file: Path, identity: dict[str, Any]) -> None:
        self._client, self._file, self._identity = client, file, identity
        client.store = str(identity.get("store", ""))
        if client.store:
            self._announce()

    def registered(self) -> None:
        """Record a registration; attempts assigned by another store are forgotten."""
        if self._identity.get("store", "") != self._client.store:
            self._identity |= {"store": self._client.store, "newest_fence": 0, "newest": ""}
        self._announce()
        self._write()

    def accept(self, desired_state: DesiredState) -> bool:
        """Whether the desired state comes from this node's store; if so, remember its newest attempt."""
        if desired_state.store != self._client.store:
            return False
        newest = max(desired_state.assignments, key=lambda assignment: assignment.fence, default=None)
        if newest is not None and newest.store and newest.fence > self._fence:
            self._identity |= {"newest_fence": newest.fence, "newest": newest.label}
            self._announce()
            self._write()
        return True

    @property
    def _fence(self) -> int:
        fence = self._identity.get("newest_fence", 0)
        return fence if isinstance(fence, int) else 0

    def _announce(self) -> None:
        self._client.remember(self._fence, str(self._identity.get("newest", "")))

    def _write(self) -> None:
        write_whole(self._file, json.dumps(self._identity))


# Pauses between retries of requests to the server.

LONGEST_PAUSE_S = 5.0
GROWTH, FIRST_GROWTH = 2.0, 1.1
"""Of the pauses; until the first answer they stay short, because the server may be starting beside this program."""


class Backoff:
    """When to retry: after growing pauses with random jitter, so that workers do not retry together."""

    def __init__(self, growth: float = GROWTH) -> None:
        self._growth, self._pause_s = growth, 0.0
        self._until = float("-inf")

    def is_due(self, now: float) -> bool:
        """Whether it is time to retry."""
        return now >= self._until

    def failed(self, now: float, took_s: float = 0.0) -> float:
        """Record a failed try that took `took_s` seconds; returns the seconds to wait, at least as many."""
        self._pause_s = min(LONGEST_PAUSE_S, max(0.2, self._pause_s * self._growth))
        wait_s = max(took_s, self._pause_s * random.uniform(0.5, 1.0))  # nosec B311: spreads retries, keeps no secret
        self._until = now + wait_s
        return wait_s

    def worked(self) -> None:
        """Record a success, which resets the pauses."""
        self._pause_s, self._until = 0.0, float("-inf")

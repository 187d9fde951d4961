"""The companion of a watched command: a worker with this one attempt, which begins before the server knows it.

It stays while the command runs, whatever the server says, and leaves once everything is delivered; what a server that
is away has not got stays in the command's folder, for `rankzero sync`."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from domain.clock import SYSTEM_CLOCK, Clock
from domain.text.paths import problem_in_words
from worker.attempt.supervision import holds_lock, is_supervised
from worker.node import processes
from worker.node.attempt_files import STATE_FILE
from worker.node.process_table import ProcessTable
from worker.node.state_files import REPORTED_FILE, has_sent_all, read_object
from worker.session.client import Client
from worker.session.options import CannotRun
from worker.watched.asking import Asking
from worker.watched.folder import ATTEMPT, COMPANION_LOCK, Watched, read
from worker.watched.guest import Connect, GuestMachine, GuestNode, WatchedTrainings
from worker.watched.place import RegisteredPlace, assign, provisional, read_place
from worker.watched.progress import ProgressFile, was_renewed

log = logging.getLogger("worker")
PATIENCE_S = 60.0
"""After the command's end a server that is away may come back within this time."""
BEGIN_WITHIN_S = 30.0
"""So long its front may take to begin with the command."""
PROVISIONAL_AFTER_S = 1.0
"""A server that answers within this time is worked for from the beginning."""
LOOK_EVERY_S, LOOK_AFTER_END_EVERY_S = 1.0, 0.1
ASK_AGAIN_AFTER_S = 5.0
"""Where the server does not know the guest any more."""
GOODBYE_LIMIT_S = 1.0
LEFT = "What is not sent stays in {}: `rankzero sync` sends it."
KEPT = "The dashboard has what it takes; the rest stays in {}."


class Companion:
    """The work for the command in one folder. Raises OSError, ValueError where that cannot be read."""

    def __init__(
        self,
        folder: Path,
        connect: Connect,
        *,
        patience_s: float = PATIENCE_S,
        clock: Clock = SYSTEM_CLOCK,
        table: ProcessTable = processes,
    ) -> None:
        self._folder, self._connect, self._patience_s = folder, connect, patience_s
        self._clock, self._table = clock, table
        self._watched: Watched = read(folder)
        self._machine = GuestMachine(folder, self._watched)
        self._progress = ProgressFile(folder, clock)
        self._over_since: float | None = None

    def run(self) -> bool:
        """Work until everything is delivered, or nobody takes it; return whether nothing is left."""
        self._await_begin()
        place = read_place(self._folder)
        while True:
            place = place or self._ask_for_place()
            if place is None:
                self._progress.tell(message=f"{self._progress.current.message} {self._left}".strip())
                return False
            if (is_delivered := self._serve(place)) is not None:
                return is_delivered
            self._clock.pause(ASK_AGAIN_AFTER_S)
            place = None

    @property
    def progress(self) -> ProgressFile:
        """The file of its progress."""
        return self._progress

    @property
    def _left(self) -> str:
        return LEFT.format(self._folder)

    def _await_begin(self) -> None:
        """Wait until the front has begun with the command, or is gone: before that nothing can be told from its
        files."""
        until = self._clock.now() + BEGIN_WITHIN_S
        attempt = self._folder / ATTEMPT
        while not ((attempt / STATE_FILE).exists() or holds_lock(attempt, self._table)):
            if self._table.find(self._watched.pid) is None or self._clock.now() >= until:
                return
            self._clock.pause(0.05)

    def _ask_for_place(self) -> RegisteredPlace | None:
        """Ask the server for a place, and work without one meanwhile; None where nobody gives one in time."""
        asking = Asking(self._machine, self._connect, self._progress, self._clock)
        has_stopped = self._clock.start("ask", asking.run)
        work = None
        if not self._clock.pause(PROVISIONAL_AFTER_S, asking.ended):
            work = self._work_provisionally()
        while not asking.ended.is_set() and not self._is_tired(work, 0.0):
            self._show(work)
            self._clock.pause(self._pause_s(work), asking.ended)
        asking.close()
        self._clock.wait(float("inf"), has_stopped)
        if asking.place is None:
            work = self._watch_to_the_end(work)
        if work is not None:
            work.end()
            self._show(work)
        return asking.place

    def _watch_to_the_end(self, work: WatchedTrainings | None) -> WatchedTrainings | None:
        """Stay with a command that has no place: it is still ended in order where its front is killed."""
        work = work or self._work_provisionally()
        while work is not None and not work.is_over:
            self._show(work)
            self._clock.pause(self._pause_s(work))
        return work

    def _work_provisionally(self) -> WatchedTrainings | None:
        """Begin to work as if the server were away; None where that cannot be."""
        try:
            assign(self._folder, provisional(self._watched, self._machine.devices), self._watched)
        except (OSError, ValueError) as error:
            log.warning("the command is not watched before the server answers: %s", error)
            return None
        work = WatchedTrainings(self._machine, away_client(), self._clock, self._table)
        work.trainings.start()
        return work

    def _serve(self, place: RegisteredPlace) -> bool | None:
        """Work for the server; return whether everything is delivered, None where it has to be asked again."""
        try:
            assign(self._folder, place.assignment, self._watched)
            client = self._connect(place.node_token)
            guest = GuestNode(self._machine, place, client, self._clock, self._table)
        except (CannotRun, OSError) as error:
            self._progress.tell(state="away", message=problem_in_words(error))
            return None if self._is_running() else False
        guest.start()
        self._progress.tell(state="registered", url=f"{client.url}{place.url}", message="")
        log.info("watched as %s", place.assignment.label)
        is_tired = False
        while not (guest.is_settled or is_tired or guest.fatal is not None):
            self._show(guest)
            self._clock.pause(self._pause_s(guest))
            is_tired = self._is_tired(guest, guest.answered_at)
        if guest.is_settled:
            return self._finish(guest)
        guest.end()
        self._show(guest)
        if guest.fatal is not None and not is_tired:
            log.warning("%s", guest.fatal)
            return None
        self._progress.tell(state="away", message=f"{guest.fatal or f'{client.url} does not answer.'} {self._left}")
        return False

    def _is_tired(self, work: WatchedTrainings | None, answered_at: float) -> bool:
        """Whether the command is over, and the server has been away for longer than one waits then."""
        if self._is_running() if work is None else not work.is_over:
            self._over_since = None
            return False
        now = self._clock.now()
        self._over_since = now if self._over_since is None else self._over_since
        return now - max(self._over_since, answered_at) >= self._patience_s

    def _is_running(self) -> bool:
        """Whether the command runs, as far as its files tell."""
        state = read_object(self._folder / ATTEMPT / STATE_FILE)
        return bool(state) and state.get("state") != "ended" and is_supervised(state, self._table)

    def _pause_s(self, work: WatchedTrainings | None) -> float:
        return LOOK_AFTER_END_EVERY_S if work is None or work.is_over else LOOK_EVERY_S

    def _show(self, work: WatchedTrainings | None) -> None:
        sizes = {} if work is None else {
            "sent_bytes": work.remaining.sent_bytes, "total_bytes": work.remaining.total_bytes,
        }  # fmt: skip
        self._progress.tell(**sizes)

    def _finish(self, guest: GuestNode) -> bool:
        """Say goodbye, and remove the folder if nothing is in it that the server lacks."""
        guest.leave(GOODBYE_LIMIT_S)
        guest.end()
        self._show(guest)
        total = guest.remaining.total_bytes
        if not has_sent_all(read_object(self._folder / ATTEMPT / REPORTED_FILE)):
            self._progress.tell(state="done", message=KEPT.format(self._folder))
            return False
        self._progress.tell(state="done", message="", sent_bytes=total, total_bytes=total)
        shutil.rmtree(self._folder, ignore_errors=True)  # not `watched` itself: another front may begin in it just now
        return True


def away_client() -> Client:
    """Return a client of a server that is away: each request raises ConnectError."""
    import httpx2

    def refuse(request: httpx2.Request) -> httpx2.Response:
        """Raises ConnectError."""
        raise httpx2.ConnectError("the server has not answered yet", request=request)

    return Client("http://away.invalid", transport=httpx2.MockTransport(refuse))


def lock(folder: Path) -> int:
    """Lock the folder for one companion. Raises BlockingIOError where it has one, OSError."""
    return processes.take_lock(folder / COMPANION_LOCK)


def is_live(folder: Path, clock: Clock = SYSTEM_CLOCK) -> bool:
    """Whether a companion or the command itself lives, so that the folder is theirs."""
    state = read_object(folder / ATTEMPT / STATE_FILE)
    if processes.is_locked(folder / COMPANION_LOCK) or holds_lock(folder / ATTEMPT):
        return True
    if state and state.get("state") != "ended" and is_supervised(state, processes):
        return True
    is_of_another = read(folder).host != os.uname().nodename
    return is_of_another and was_renewed(folder, clock.wall())

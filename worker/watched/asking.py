"""Asks the dashboard for the place of a watched command, until it has one."""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from typing import Literal

from pydantic import ValidationError

from domain.clock import Clock
from domain.text.paths import problem_in_words
from domain.watching.messages import WatchAnswer, WatchRequest
from worker.session.failures import RequestRefused, ServerAway, Unauthorized
from worker.session.options import CannotRun
from worker.session.server_session import Backoff
from worker.watched.guest import Connect, GuestMachine
from worker.watched.place import RegisteredPlace, place_in, request_of, take
from worker.watched.progress import ProgressFile

log = logging.getLogger("worker")
RARELY_S = 60.0
"""After a refused token, which may become valid, or may be replaced in its file."""
WAITS_S = 3.0
"""While an earlier attempt of the run has not ended."""


class Asking:
    """The question for a place, in a thread of its own."""

    def __init__(self, machine: GuestMachine, connect: Connect, progress: ProgressFile, clock: Clock) -> None:
        self._machine, self._connect, self._progress, self._clock = machine, connect, progress, clock
        self._backoff = Backoff()
        self._closed = threading.Event()
        self.place: RegisteredPlace | None = None
        self.ended = threading.Event()
        """Set once there is a place, or no use in asking."""

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()

    def run(self) -> None:
        """Ask until there is a place; it is refused for ever where the server says so."""
        try:
            request = request_of(self._machine.watched, self._machine.facts())
        except ValidationError as error:
            self._tell("refused", f"The command cannot be described to the dashboard: {_first_line(error)}")
        else:
            while not self._closed.is_set() and (pause_s := self._ask(request)) is not None:
                self._clock.pause(pause_s, self._closed)
        self.ended.set()

    def _ask(self, request: WatchRequest) -> float | None:
        """Ask once; return the seconds until the next time, None where there is none."""
        try:
            with closing(self._connect(None)) as client:
                return self._follow(client.watch(request))
        except (Unauthorized, RequestRefused) as error:
            self._tell("refused", str(error))
            return RARELY_S
        except (CannotRun, ServerAway) as error:
            self._tell("away", str(error))
        except (OSError, ValueError) as error:  # a full disk of ours, or an answer that is none
            self._tell("away", problem_in_words(error) or str(error))
        return self._backoff.failed(self._clock.now())

    def _follow(self, answer: WatchAnswer) -> float | None:
        """Take the place of an answer. Raises OSError, ValueError."""
        if answer.place == "waits":
            self._tell("away", answer.message)
            return WAITS_S
        if answer.place == "refused":
            self._tell("refused", answer.message)
            return None
        place = place_in(answer)
        take(self._machine.folder, place, self._machine.watched)
        self.place = place
        return None

    def _tell(self, state: Literal["away", "refused"], message: str) -> None:
        if message != self._progress.current.message:
            log.warning("%s", message)
        self._progress.tell(state=state, message=message)


def _first_line(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"

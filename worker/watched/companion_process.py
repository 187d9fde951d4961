"""The companion, as the front sees it: a program of its own that sends what the command leaves in its folder."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from domain.clock import SYSTEM_CLOCK, Clock
from worker.node import processes
from worker.watched.folder import COMPANION_LOCK, COMPANION_LOG, REGISTRATION_FILE

MODULE = "cli.commands.anywhere.companion"
STATUS_FILE = "companion.json"
"""What the companion tells the front: state, url, message, sent_bytes, total_bytes."""
RESTART_S = 5.0
"""The pause before a companion that was killed is started again; it doubles each time."""
NOTICE_S = 2.0
"""Who registers later than this tells it after the end: it would appear amid the command's output."""
TERMINAL_WAIT_S = 2.0
LONGEST_WAIT_S = 300.0
STALLED_S = 20.0
TRIES_S = 0.05
Say = Callable[[str], None]


class CompanionProgram(Protocol):
    """The part of the interface of `subprocess.Popen` that is used here."""

    def poll(self) -> int | None: ...


Launch = Callable[[Path], CompanionProgram]
"""Starts the companion of a folder. Raises OSError."""


def launch_companion(folder: Path) -> CompanionProgram:
    """Start the companion in a session of its own. Raises OSError."""
    argv = [sys.executable, "-P", "-m", MODULE, str(folder)]
    with (folder / COMPANION_LOG).open("ab") as log:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, preexec_fn=_unblock_signals
        )


class CompanionProcess:
    """Starts the companion, starts it again where it was killed, and says once what became of it."""

    def __init__(self, folder: Path, say: Say, launch: Launch = launch_companion, clock: Clock = SYSTEM_CLOCK) -> None:
        self._folder, self._say, self._launch, self._clock = folder, say, launch, clock
        self._process: CompanionProgram | None = None
        self._began_at, self._restart_at, self._pause_s = clock.now(), float("-inf"), RESTART_S
        self._has_spoken = self._was_registered = False
        self._status: dict[str, Any] = {}
        self._status_key: tuple[int, int] | None = None

    def start(self) -> None:
        """Start it; how often, `look` decides."""
        self._restart_at = self._clock.now() + self._pause_s
        self._pause_s *= 2
        try:
            self._process = self._launch(self._folder)
        except (OSError, subprocess.SubprocessError) as error:
            self._speak(f"what is recorded stays in {self._folder}: its sender could not be started ({error})")

    def look(self) -> None:
        """Do what is due while the command runs."""
        if not self._is_alive() and self._state() not in ("done", "refused") and self._clock.now() >= self._restart_at:
            self.start()
        self._tell()

    def wait_until_delivered(self, is_last: bool, is_interrupted: Callable[[float], bool]) -> None:
        """Wait until everything is sent or nothing more can be: for two seconds; `is_last`, where the companion ends
        with us: as long as it gets on, five minutes at most. `is_interrupted(seconds)` waits, and says to go."""
        self.look()
        now = self._clock.now()
        until, moved_at, sent = now + (LONGEST_WAIT_S if is_last else TERMINAL_WAIT_S), now, -1
        while self._clock.now() < until and self._is_alive() and self._state() not in ("done", "away", "refused"):
            if is_interrupted(TRIES_S):
                return
            if (sent_now := int(self._status.get("sent_bytes") or 0)) != sent:
                sent, moved_at = sent_now, self._clock.now()
            if self._clock.now() - moved_at >= STALLED_S:
                break
        self._tell(is_over=True)
        if not self._is_alive() and not self._state():
            self._speak(f"what is recorded stays in {self._folder}: `rankzero sync` sends it")
        if is_last and self._is_alive() and self._state() not in ("done", "away", "refused"):
            self._say(f"not everything could be sent in time; the rest is in {self._folder}: `rankzero sync` sends it")

    def _is_alive(self) -> bool:
        """Whether it runs; also one that somebody else has started holds the lock."""
        if self._process is not None and self._process.poll() is None:
            return True
        return processes.is_locked(self._folder / COMPANION_LOCK)

    def _tell(self, is_over: bool = False) -> None:
        """Say where the run is seen, at once or when its output is over, or why it is not yet; once."""
        state, message = self._state(), str(self._status.get("message") or "")
        if state in ("registered", "done"):
            self._was_registered = True
            if (url := self._status.get("url")) and (is_over or self._clock.now() - self._began_at <= NOTICE_S):
                self._speak(f"{'watched' if is_over else 'watching'} as {self._run_id()}, {url}")
        elif state in ("away", "refused") and not self._was_registered:
            self._speak(message or f"the dashboard has nothing of this run yet; it is recorded in {self._folder}")

    def _speak(self, sentence: str) -> None:
        if not self._has_spoken:
            self._has_spoken = True
            self._say(sentence)

    def _run_id(self) -> str:
        with suppress(OSError, ValueError, LookupError, TypeError):
            return str(json.loads((self._folder / REGISTRATION_FILE).read_text())["assignment"]["run_id"])
        return "a run"

    def _state(self) -> str:
        """The state that it last wrote; empty before."""
        path = self._folder / STATUS_FILE
        with suppress(OSError, ValueError):
            status = path.stat()
            if (key := (status.st_ino, status.st_mtime_ns)) != self._status_key:
                document = json.loads(path.read_bytes())
                self._status, self._status_key = document if isinstance(document, dict) else {}, key
        return str(self._status.get("state") or "")


def _unblock_signals() -> None:
    """Undo what the front blocks for itself; runs in the child before exec."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])

"""A process that watches itself: a companion program follows it by its folder, and the probe observes it from within.

`worker.watched.attach`, a program of its own, makes the folder and starts the companion, which speaks to the server.
From then on this process writes what a supervisor writes of an attempt (docs/RUN-DIRECTORY.md)."""

from __future__ import annotations

import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from domain.clock import SYSTEM_CLOCK, Clock
from rankzero.ends import End
from rankzero.output import Copied, say
from rankzero.run_folder import RunFolder

COMMAND = (sys.executable, "-P", "-m", "worker.watched.attach")
ANSWER_S = 10.0
LOOK_EVERY_S = 0.5
URL_S = 3.0
NOTICE_S = 2.0
"""A run that appears later is not announced: the line would come amid the script's output."""
REGISTERED, REFUSED = ("registered", "done"), ("away", "refused")
"""States of the companion."""


class CannotWatch(Exception):
    """This process cannot be watched; carries the reason."""


def ask(request: Mapping[str, Any]) -> dict[str, Any]:
    """Have the folder of this process made, and its companion started. Raises CannotWatch, OSError, ValueError."""
    process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    SYSTEM_CLOCK.start("rankzero-attach", process.wait)  # it goes on for a moment, and leaves no zombie
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout as answers:
        with suppress(BrokenPipeError), process.stdin as question:  # where it could not even start
            question.write(json.dumps(request).encode())
        line = _first_line(answers)
    if line is None:
        process.kill()
        raise CannotWatch(f"its folder could not be made within {ANSWER_S:g} s")
    if not line:
        raise CannotWatch(f"`{' '.join(COMMAND)}` failed: is rankzero[watch] installed for this Python?")
    answer: dict[str, Any] = json.loads(line)
    if problem := answer.get("problem"):
        raise CannotWatch(problem)
    return answer


def _first_line(stream: Any) -> bytes | None:
    """Return the first line, empty at the end of the stream; None where none comes in time."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return stream.readline() if selector.select(ANSWER_S) else None


class Attachment:
    """What watches this process, from `begin` to `end`."""

    def __init__(self, answer: Mapping[str, Any], *, is_notebook: bool, clock: Clock = SYSTEM_CLOCK) -> None:
        self.folder = RunFolder(Path(answer["folder"]), answer["run_id"], int(answer["rank"]), answer["state"])
        self._probe_folder, self._env, self._is_last = answer["probe"], answer["env"], bool(answer["is_last"])
        self._is_notebook, self._clock, self._pid = is_notebook, clock, os.getpid()
        self._env_before: dict[str, str | None] = {}
        self._probe: Any = None
        self._copies: dict[str, Copied] = {}
        self._ended = threading.Event()
        self._kill_at: float | None = None
        self._has_told, self._began_at = False, clock.now()

    @property
    def is_live(self) -> bool:
        """Whether this very process is still watched."""
        return not self._ended.is_set() and os.getpid() == self._pid

    def begin(self) -> None:
        """Observe this process and what it starts from now on."""
        self._env_before = {name: os.environ.get(name) for name in self._env}
        os.environ.update(self._env)
        for suffix, stream in (("out", sys.stdout), ("err", sys.stderr)):
            with suppress(OSError, AttributeError):  # a stream that is closed, or cannot be copied
                self._copies[suffix] = Copied(stream, self.folder.log(suffix))
        self._begin_probe()
        self._clock.start("rankzero-watch", self._follow)

    def restore_stderr(self) -> None:
        """Copy no more of stderr: what follows is the exception by which the process ends, which `end` writes."""
        if copy := self._copies.get("err"):
            copy.close()

    def end(self, end: End) -> None:
        """Record the end, and leave the process as it was; only the first call counts, and none in a forked child."""
        if not self.is_live:
            return
        self._ended.set()
        with suppress(Exception):
            self._probe.end()
        for copy in self._copies.values():
            copy.close()
        self._restore_environment()
        with suppress(OSError), self.folder.log("err").open("a") as log:
            log.write(end.traceback)
        if end.is_stopped and self._kill_at is None:
            self.folder.save(stop_requested_at=self._clock.wall())
        self.folder.save(state="ended", exit_code=end.exit_code, ended_at=self._clock.wall())

    def wait_until_delivered(self) -> None:
        """Wait at the end of the process as `rankzero watch` does: for moments, longer where the companion ends too."""
        arguments = [str(self.folder.path), *(["--last"] if self._is_last else [])]
        with suppress(OSError, KeyboardInterrupt):
            subprocess.run([*COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)

    def url(self) -> str:
        """Return the address of the run's page, waiting a moment for the server's answer; empty without one."""
        until = self._clock.now() + URL_S
        while not (companion := self.folder.companion()).get("url") and self._clock.now() < until:
            if companion.get("message") or not self.folder.exists:
                break
            self._clock.pause(0.05)
        return str(companion.get("url") or "")

    def _begin_probe(self) -> None:
        try:
            self._probe = _imported_from(self._probe_folder, "rankzero_probe.attachment")
            self._probe.begin()
        except Exception as error:
            say(f"steps are not observed: {type(error).__name__}: {error}")

    def _follow(self) -> None:
        """Tell people once how it went with the server, pass on Stop, and write what a full disk did not take."""
        while not self._clock.pause(LOOK_EVERY_S, self._ended):
            self._tell()
            self._pass_on_stop()
        while not self.folder.is_saved and self.folder.exists:
            self._clock.pause(LOOK_EVERY_S)
            self.folder.save()

    def _tell(self) -> None:
        companion = self.folder.companion()
        state, message = companion.get("state"), companion.get("message")
        if self._has_told or not (state in REGISTERED or (state in REFUSED and message)):
            return
        self._has_told = True
        if state in REFUSED:
            say(f"{message} What is recorded stays in {self.folder.path}.")
        elif self._clock.now() - self._began_at <= NOTICE_S:
            say(f"watching as {self.folder.run_id}, {companion.get('url')}")

    def _pass_on_stop(self) -> None:
        """Interrupt the cell of a notebook, which itself is never ended; end a script, at last with SIGKILL."""
        if self._kill_at is None:
            if (grace_s := self.folder.stop_grace()) is not None:
                self._kill_at = self._clock.now() + grace_s
                self.folder.save(state="stopping", stop_requested_at=self._clock.wall())
                number = signal.SIGINT if self._is_notebook else signal.SIGTERM
                signal.pthread_kill(threading.main_thread().ident or 0, number)
        elif self._clock.now() >= self._kill_at and not self._is_notebook:
            os.kill(self._pid, signal.SIGKILL)

    def _restore_environment(self) -> None:
        for name, value in self._env_before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _imported_from(folder: str, name: str) -> Any:
    """Import a module from a folder that is not left on the path. Raises ImportError."""
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)

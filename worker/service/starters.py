"""What starts the worker, and starts it again: the user's systemd, else a detached process and a line for cron."""

from __future__ import annotations

import fcntl
import getpass
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from domain.clock import SYSTEM_CLOCK, Clock
from domain.launch.systemd_unit import user_unit
from worker.node.processes import is_alive, is_locked, send_signal, take_lock, with_arguments
from worker.service.home import Home, write

PROGRAM = "worker.service.program"
"""Keeps its name: the units of installed nodes and the commands of other versions start it by that."""
ANSWER_LIMIT_S = 10.0
AGAIN_AFTER_S = 5.0
REFUSED_AGAIN_AFTER_S = 60.0
"""A worker that was refused, because its node was removed for instance, has said so and ended."""
END_LIMIT_S = 20.0
NO_CRONTAB = re.compile("(?i)no crontab|no such file")
"""What `crontab -l` says of a user who has none."""
DEFAULT_FOLDER = "rankzero-node"


class Systemd:
    """A unit of the user's own systemd, which runs without a login because the user lingers."""

    sentence = "as a systemd unit of its user, also after a reboot"

    def __init__(self, home: Home) -> None:
        self._home = home
        suffix = home.path.name.removeprefix(DEFAULT_FOLDER)
        self.unit = f"rankzero-worker{''.join(c if c.isalnum() or c in '-_.' else '_' for c in suffix)}.service"

    def is_usable(self) -> bool:
        """Whether the user has a systemd that continues after the last logout; requests that otherwise."""
        if not self._answers("show", "-p", "Version"):
            return False
        if self._lingers():
            return True
        _ask("loginctl", "enable-linger")
        return self._lingers()

    def is_installed(self) -> bool:
        """Whether the unit is there."""
        return self._path().exists()

    def start(self) -> None:
        """Write the unit and start or restart it. Raises OSError where systemd refuses."""
        self._path().parent.mkdir(parents=True, exist_ok=True)
        command = [str(self._home.current / "bin/python"), "-P", "-m", PROGRAM, "run", str(self._home.path)]
        write(self._path(), user_unit(command, os.uname().nodename))
        for arguments in (("daemon-reload",), ("enable", "-q", self.unit), ("restart", self.unit)):
            outcome = _ask("systemctl", "--user", *arguments)
            if outcome is None or outcome.returncode:
                error_text = outcome.stderr.strip() if outcome else "no answer"
                raise OSError(f"systemctl --user {' '.join(arguments)} failed: {error_text}")

    def stop(self) -> None:
        """Stop the worker and remove the unit; trainings continue."""
        if self.is_installed():
            _ask("systemctl", "--user", "disable", "-q", "--now", self.unit)
            self._path().unlink(missing_ok=True)
            _ask("systemctl", "--user", "daemon-reload")

    def _path(self) -> Path:
        config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        return Path(config) / "systemd/user" / self.unit

    def _answers(self, *arguments: str) -> bool:
        outcome = _ask("systemctl", "--user", *arguments)
        return outcome is not None and outcome.returncode == 0

    def _lingers(self) -> bool:
        outcome = _ask("loginctl", "show-user", str(os.getuid()), "-p", "Linger")
        return outcome is not None and "Linger=yes" in outcome.stdout


class Detached:
    """A process of its own session, and a line in the user's crontab that starts it with the machine."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.process: subprocess.Popen[bytes] | None = None
        """The process, where this object has started it."""
        self._lock = home.path / "keeper.lock"

    @property
    def sentence(self) -> str:
        """How the worker is started."""
        if self.is_in_crontab():
            return "as a detached process, started after a reboot by cron"
        return "as a detached process; it does not start again after a reboot (no systemd of its user, no crontab)"

    def is_installed(self) -> bool:
        """Whether the process runs, or cron would start it."""
        return is_locked(self._lock) or self.is_in_crontab()

    def start(self) -> None:
        """Start the process; where it runs already, let it restart the worker."""
        self._set_crontab(is_listed=True)
        if is_locked(self._lock) and self._home.worker_runs():
            end_worker(self._home)
            return
        self._end_keeper()  # it waits before it tries again
        with self._home.log.open("ab") as log:
            command = [str(self._home.python), "-P", "-m", PROGRAM, "keep", str(self._home.path)]
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=self._home.path
            )

    def stop(self) -> None:
        """End the process and with it the worker, and forget them; trainings continue."""
        self._set_crontab(is_listed=False)
        self._end_keeper()

    def is_in_crontab(self) -> bool:
        """Whether cron starts it with the machine."""
        return self._line() in (self._lines() or ())

    def _end_keeper(self) -> None:
        end_all(lambda words: words[-3:] == [PROGRAM, "keep", str(self._home.path)])

    def _line(self) -> str:
        words = [str(self._home.current / "bin/python"), "-P", "-m", PROGRAM, "keep", str(self._home.path)]
        quoted = ["'" + argument.replace("'", "'\\''").replace("%", "\\%") + "'" for argument in words]
        return "@reboot " + " ".join(quoted)

    @staticmethod
    def _lines() -> list[str] | None:
        """Return the lines of the user's crontab; None where it cannot be read."""
        outcome = _ask("crontab", "-l")
        if outcome is not None and outcome.returncode and NO_CRONTAB.search(outcome.stderr):
            return []
        return outcome.stdout.splitlines() if outcome is not None and outcome.returncode == 0 else None

    def _set_crontab(self, is_listed: bool) -> None:
        """Add the line to the crontab or remove it; a crontab that cannot be read stays as it is."""
        lines = self._lines()
        new_lines = [line for line in lines or () if line != self._line()] + [self._line()] * is_listed
        if lines is not None and new_lines != lines:
            _ask("crontab", "-", text="".join(f"{line}\n" for line in new_lines))


def starter(home: Home) -> Systemd | Detached:
    """Return what starts the worker of this installation; a new one gets the best that there is."""
    systemd, detached = Systemd(home), Detached(home)
    if detached.is_installed() and not systemd.is_installed():
        return detached
    return systemd if systemd.is_usable() else detached


def keep(home: Home) -> None:
    """Run the worker and, when it has ended, start again from the newest version; until a signal."""
    try:
        lock = take_lock(home.path / "keeper.lock")
    except BlockingIOError:
        return
    worker: subprocess.Popen[bytes] | None = None
    is_ending = False

    def leave(number: int = signal.SIGTERM, _frame: object = None) -> None:
        nonlocal is_ending
        is_ending = True
        if worker is not None:
            with suppress(OSError):
                os.kill(worker.pid, number)

    signal.signal(signal.SIGTERM, leave)  # before there is a worker that would be left behind
    worker = subprocess.Popen([sys.executable, "-P", "-m", PROGRAM, "run", str(home.path)], stdin=subprocess.DEVNULL)
    if is_ending:
        leave()
    code = worker.wait()
    if is_ending:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `end_all` repeats it until this process is gone
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    SYSTEM_CLOCK.pause(0.0 if code in (0, -signal.SIGTERM) else AGAIN_AFTER_S if code < 0 else REFUSED_AGAIN_AFTER_S)
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.execv(home.python, [str(home.python), "-P", "-m", PROGRAM, "keep", str(home.path)])


def end_worker(home: Home) -> None:
    """End the worker; trainings continue."""
    begins, data = [PROGRAM, "run", str(home.path)], ("--data", str(home.data))
    end_all(lambda words: words[-3:] == begins or ({"cli.main", "worker"} < set(words) and data in pairwise(words)))


def end_all(matches: Callable[[list[str]], bool], clock: Clock = SYSTEM_CLOCK) -> None:
    """End the processes whose command line matches now, and wait until they are gone.

    Those that begin meanwhile stay: the keeper starts the next worker as soon as this one has ended."""
    deadline = clock.now() + END_LIMIT_S
    processes = with_arguments(matches)
    while (processes := [one for one in processes if is_alive(one)]) and clock.now() < deadline:
        for process in processes:
            send_signal(process, signal.SIGTERM)
        clock.pause(0.1)


def _ask(*argv: str, text: str | None = None) -> subprocess.CompletedProcess[str] | None:
    """Run a program of the system; None where there is none, or it does not answer."""
    if shutil.which(argv[0]) is None:
        return None
    try:
        return subprocess.run(
            argv,
            input=text or "",
            capture_output=True,
            text=True,
            env=_environment(),
            timeout=ANSWER_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _environment() -> Mapping[str, str]:
    """Return the environment in which `systemctl --user` finds its systemd, also without a login session."""
    own = {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}", "USER": getpass.getuser(), "LC_ALL": "C"}
    return {**own, **os.environ, "LC_ALL": "C"}

"""Owns the processes of one attempt: starts the launcher, outlives the worker, leaves no process behind.

Run as `python -P -m worker.attempt.supervisor --data DIR --attempt RUN/N ATTEMPT_DIR`. It imports only the
standard library: there is one supervisor per attempt, and it must start fast and use little memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from domain.clock import SYSTEM_CLOCK, Clock
from worker.attempt.kernel import Kernel, Launcher, WarmLauncher
from worker.node import control_groups, processes
from worker.node.attempt_files import LAUNCH_FILE, LOCK_FILE, MEMBERS_FILE, POINTS_FILE, STATE_FILE, STOP_FILE
from worker.node.process_table import ProcessTable
from worker.node.processes import Process, take_lock
from worker.node.regular_files import bytes_of, open_regular
from worker.probe.rankzero_probe.peers import is_aborted, keep_records


def main(arguments: list[str]) -> int:
    """Supervise one attempt until none of its processes is left; returns the exit code."""
    if len(arguments) != 5 or arguments[0] != "--data" or arguments[2] != "--attempt":
        print(
            "usage: python -P -m worker.attempt.supervisor --data DIR --attempt RUN/N ATTEMPT_DIR",
            file=sys.stderr,
        )
        return 2
    run_id, _, attempt = arguments[3].partition("/")
    attempt_dir = Path(arguments[4]).absolute()
    kernel = Kernel(WarmLauncher.inherited(os.environ))
    with suppress(PermissionError):  # already leads a session when started by the worker
        os.setsid()
    try:
        directory = AttemptDirectory(attempt_dir)
    except BlockingIOError:
        return 0
    if (attempt_dir / STATE_FILE).exists():
        return 0  # an attempt is started at most once
    processes.become_subreaper()
    Supervisor(directory, run_id, int(attempt), kernel).run()
    return 0


STARTING_POLL_S = 0.1
POLL_S = 0.2
LINGER_S = 1.0
"""The time that processes left by a cleanly ended launcher have to end by themselves."""
LEFTOVER_GRACE_S = 5.0
"""The time between SIGTERM and SIGKILL for processes that lost their launcher."""
MISSING_S = 1.0
"""The delay before a deleted file is written again: the whole directory may be in the process of being deleted."""
MEMBERS_EVERY_S = RANKS_EVERY_S = 1.0
SPARES = 4
LOG_ROOM_BYTES = 16 * 1024
"""Preallocated in each log, so that the traceback of a full disk can still be written."""


class AttemptDirectory:
    """The attempt's directory and the supervisor's lock in it.

    Raises BlockingIOError if another supervisor holds the lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._folder_id = _identity(os.fstat(self._descriptor))
        self._lock = take_lock(folder / LOCK_FILE)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)
        os.close(self._lock)

    def is_gone(self) -> bool:
        """Whether the directory was deleted, emptied, moved or replaced."""
        try:
            (self.folder / LAUNCH_FILE).stat()
            return _identity(self.folder.stat()) != self._folder_id
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # a network file system that does not answer
            return False

    def write(self, name: str, text: str) -> None:
        """Write a file of this very directory, wherever it is now, atomically. Raises OSError."""
        own = self._descriptor
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe may be in its place
        with os.fdopen(os.open(f".{name}.tmp", flags, 0o600, dir_fd=own), "w") as file:
            file.write(text)
        os.replace(f".{name}.tmp", name, src_dir_fd=own, dst_dir_fd=own)

    def has_lock(self) -> bool:
        """Whether the lock file is still the one this process holds."""
        with suppress(OSError):
            return _identity((self.folder / LOCK_FILE).stat()) == _identity(os.fstat(self._lock))
        return False

    def renew_lock(self) -> None:
        """Create and lock the file again. Raises OSError."""
        lock = take_lock(self.folder / LOCK_FILE)
        os.close(self._lock)
        self._lock = lock


class Supervisor:
    """One attempt, from its first process to its last."""

    def __init__(
        self,
        directory: AttemptDirectory,
        run_id: str,
        attempt: int,
        kernel: Kernel,
        table: ProcessTable = processes,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._kernel, self._table, self._clock = kernel, table, clock
        self._attempt_directory, self._dir = directory, directory.folder
        self._run_id, self._attempt = run_id, attempt
        self._launch: dict[str, Any] = json.loads(bytes_of(self._dir / LAUNCH_FILE))
        self._is_watched = bool(self._launch.get("watched"))
        """Whether somebody else started it (`rankzero watch`): nothing of ours may delay, change or end its command."""
        self._aborted_ranks = AbortedRanks(self._dir)
        self._launcher: Launcher | None = None
        self._kill_at: float | None = None
        self._stop_text: bytes | None = None
        self._terminated = False
        self._saved = self._has_lost_directory = False
        self._missing_since: float | None = None
        self._members: list[Process] = []
        self._members_at = self._ranks_at = float("-inf")
        own = table.find(kernel.pid)
        self.state: dict[str, Any] = {
            "pid": kernel.pid, "start_ticks": own.start_ticks if own else 0, "boot_id": table.boot_id(),
            "state": "starting", "ranks": {}, "launcher_pid": None, "launch_error": None,
            "started_at": clock.wall(), "running_at": None, "stop_requested_at": None, "ended_at": None,
            "exit_code": None, "signal": None, "killed": [], "out_of_memory_kills": 0,
            "memory_limit_bytes": control_groups.memory_limit_bytes(),
        }  # fmt: skip
        self._memory_kills_before = control_groups.out_of_memory_kills() or 0

    def run(self) -> None:
        """Start the launcher, wait for it, end its leftover processes, and record the end on disk."""
        if not self._is_watched:  # a slow disk would delay it
            self._preallocate_spares()
            self._save()
        self._start_launcher()
        while self._launcher is not None and self._launcher.poll() is None:
            self._wait(STARTING_POLL_S if self.state["state"] == "starting" else POLL_S)
            self._link_rank_logs()
            self._record_ranks()
            self._record_members()
            self._aborted_ranks.look()
            self._kill_when_due()
        self._link_rank_logs()
        self._record_exit()
        if not self._is_watched:  # as in a shell, what it leaves in the background goes on
            self._end_leftovers()
        self._link_rank_logs()
        self.state.update(state="ended", ended_at=self._clock.wall())
        self._change()
        while not self._saved and not self._has_lost_directory and not self._is_watched:
            self._wait(1.0)
        for spare in _matching(self._dir, "supervisor.spare*"):
            spare.unlink(missing_ok=True)

    def _start_launcher(self) -> None:
        logs = self._dir / "logs"
        logs.mkdir(exist_ok=True)
        name = self._launch.get("output") or ("rank0" if self._launch["launcher"] == "python" else "launcher")
        try:
            with (logs / f"{name}.out").open("ab") as out, (logs / f"{name}.err").open("ab") as err:
                processes.preallocate(logs / f"{name}.err", LOG_ROOM_BYTES)
                program = "" if self._is_watched else self._launch["argv"][0]
                env = processes.merged_environment(os.environ, self._launch["env"], program)
                self._launcher = self._kernel.start(self._launch, env, out, err)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._change(launch_error=str(error))
            return
        self._change(launcher_pid=self._launcher.pid, is_warm=isinstance(self._launcher, WarmLauncher))

    def _wait(self, seconds: float) -> None:
        """Sleep until a signal arrives or the time is over; then handle stop requests and reap orphans."""
        if self._kernel.wait(seconds) == signal.SIGTERM:
            self._request_stop(float(self._launch["grace_s"]) if self._kill_at is None else 0.0)
        self._check_directory()
        self._read_stop_file()
        self._kernel.reap(keep=self._launcher.pid if self._launcher else None)
        if not self._saved:
            self._save()

    def _check_directory(self) -> None:
        """Restore deleted files. Without its directory nobody can follow the attempt, so it is stopped."""
        if self._has_lost_directory:
            return
        if self._attempt_directory.is_gone():
            self._has_lost_directory = True
            if not self._is_watched:
                self._request_stop(float(self._launch["grace_s"]))
            return
        has_lock = self._attempt_directory.has_lock()
        if has_lock and (self._dir / STATE_FILE).exists():
            self._missing_since = None
            return
        now = self._clock.now()
        self._missing_since = self._missing_since or now
        if now - self._missing_since < MISSING_S:
            return
        self._saved = False
        with suppress(OSError):
            if not has_lock:
                self._attempt_directory.renew_lock()

    def _read_stop_file(self) -> None:
        """Read the seconds of grace from the stop file; a smaller number written later shortens them."""
        if self._launch.get("look_only"):
            return
        try:
            text = bytes_of(self._dir / STOP_FILE).strip()
        except OSError:
            return
        if text != self._stop_text:
            self._stop_text = text
            try:
                grace_s = float(text)
            except ValueError:
                grace_s = float(self._launch["grace_s"])
            self._request_stop(grace_s)

    def _request_stop(self, grace_s: float) -> None:
        kill_at = self._clock.now() + grace_s
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)
        if self.state["stop_requested_at"] is None:
            self._change(state="stopping", stop_requested_at=self._clock.wall())
        if self._launcher is not None and self._launcher.poll() is None and not self._terminated:
            self._terminated = True
            self._launcher.terminate()

    def _kill_when_due(self) -> None:
        if self._kill_at is not None and self._clock.now() >= self._kill_at:
            self._kill(self._attempt_processes)

    def _record_ranks(self) -> None:
        if self._launcher is None:
            return
        if self._is_watched:
            self._record_watched_ranks()
            return
        if self._launch["launcher"] == "python" and self._launch["processes"] > 1:
            self._record_spawned_ranks()
            return
        if self.state["running_at"] is not None:
            return
        pid = self._launcher.pid
        ranks = {0: pid} if self._launch["launcher"] == "python" else _ranks_of(pid, self._table)
        if len(ranks) >= self._launch["processes"]:
            self._begin_to_run(ranks)

    def _record_spawned_ranks(self) -> None:
        """Record the ranks that the script itself started, as they come; it runs from the first one's begin on."""
        if len(self.state["ranks"]) >= self._launch["processes"]:
            return
        ranks = recorded_ranks(self._dir)
        if self.state["running_at"] is None:
            if ranks or has_output(self._dir, self._launch["env"]):
                self._begin_to_run(ranks)
        elif len(ranks) > len(self.state["ranks"]):
            self._change(ranks=_by_rank(ranks))

    def _record_watched_ranks(self) -> None:
        """Record the ranks of a watched command as they come: how many is unknown, and torchrun may replace them."""
        now = self._clock.now()
        if now - self._ranks_at < RANKS_EVERY_S:
            return
        self._ranks_at = now
        ranks = recorded_ranks(self._dir)
        if self.state["running_at"] is None:
            if ranks or has_output(self._dir, {}):
                self._begin_to_run(ranks)
        elif (pids := _by_rank(ranks)) != self.state["ranks"]:
            self._change(ranks=pids)

    def _begin_to_run(self, ranks: dict[int, int]) -> None:
        state = "running" if self.state["state"] == "starting" else self.state["state"]
        self._change(ranks=_by_rank(ranks), running_at=self._clock.wall(), state=state)

    def _record_members(self) -> None:
        """Write down our descendants now and then: after our death there may be no other trace of them."""
        now = self._clock.now()
        if now - self._members_at < MEMBERS_EVERY_S or self._has_lost_directory:
            return
        self._members_at = now
        if (members := self._descendants()) != self._members:
            with suppress(OSError):  # a full disk: most are found without it
                text = json.dumps({"boot_id": self._table.boot_id(), "members": members})
                self._attempt_directory.write(MEMBERS_FILE, text)
                self._members = members

    def _link_rank_logs(self) -> None:
        """Link logs/rank<R>.out, by the rank in the whole run, to torchrun's own file."""
        if self._launch["launcher"] == "python":
            return
        for local_rank in range(self._launch["processes"]):
            rank = self._launch["first_rank"] + local_rank
            for name, suffix in (("stdout", "out"), ("stderr", "err")):
                self._link_newest(f"rank{rank}.{suffix}", f"torchrun/*/attempt_*/{local_rank}/{name}.log")

    def _link_newest(self, name: str, pattern: str) -> None:
        """Link to the newest file: each restart by torchrun itself begins a new one."""
        link = self._dir / "logs" / name
        if link.is_symlink() and not self._launch.get("launcher_restarts"):
            return
        for target in sorted(_matching(link.parent, pattern), key=_launcher_attempt)[-1:]:
            with suppress(OSError):
                if link.is_symlink() and link.resolve() == target.resolve():
                    return
                link.unlink(missing_ok=True)
                link.symlink_to(target.relative_to(link.parent))
                processes.preallocate(target, LOG_ROOM_BYTES)

    def _record_exit(self) -> None:
        if self._launcher is None or (code := self._launcher.returncode) is None:
            return
        if self.state["running_at"] is None and (code == 0 or self._has_started_ranks()):  # over before they were seen
            self._change(running_at=self.state["started_at"])
        kills = max(0, (control_groups.out_of_memory_kills() or 0) - self._memory_kills_before)
        name = signal.Signals(-code).name if code < 0 else None
        self._change(exit_code=code, signal=name, out_of_memory_kills=kills)

    def _has_started_ranks(self) -> bool:
        """Whether a rank was started, for which torchrun opens logs; one process of Python is itself a rank."""
        if self._launch["launcher"] == "python":
            return bool(self._launch["processes"] == 1)
        ranks = range(self._launch["first_rank"], self._launch["first_rank"] + self._launch["processes"])
        logs = [self._dir / "logs" / f"rank{rank}.err" for rank in ranks]
        return any(log.is_symlink() or log.exists() for log in logs)

    def _end_leftovers(self) -> None:
        """End the processes that the launcher left behind: SIGTERM, then SIGKILL, until none is left."""
        clean = self.state["exit_code"] == 0 and self._kill_at is None
        terminate_at = self._clock.now() + (LINGER_S if clean else 0.0)
        terminated: set[Process] = set()
        while (remaining := self._attempt_processes()) or self._kernel.has_children():
            now = self._clock.now()
            if now >= terminate_at:
                for process in set(remaining) - terminated:
                    self._table.send_signal(process, signal.SIGTERM)
                terminated |= set(remaining)
                kill_at = terminate_at + LEFTOVER_GRACE_S if self._kill_at is None else self._kill_at
                if now >= kill_at:
                    self._kill(self._attempt_processes)
            self._wait(0.05)

    def _attempt_processes(self) -> list[Process]:
        """Every other process of the attempt: descendants, and processes whose environment names it."""
        node_rank = int(self._launch["env"].get(processes.NODE_RANK_VARIABLE, 0))
        named = self._table.of_attempt(self._run_id, self._attempt, node_rank)
        return sorted({*self._descendants(), *named})

    def _descendants(self) -> list[Process]:
        """Our descendants; of a watched command only its own, because its companion is not the attempt's."""
        if not self._is_watched:
            return self._table.descendants(self._kernel.pid)
        command = self._table.find(self._launcher.pid) if self._launcher else None
        return [command, *self._table.descendants(command.pid)] if command else []

    def _kill(self, find_all: Callable[[], list[Process]]) -> None:
        killed = self._table.kill_all(find_all, 1.0, self._clock)
        if killed:
            self._change(killed=sorted({*self.state["killed"], *killed}))

    def _change(self, **facts: Any) -> None:
        self.state.update(facts)
        self._saved = False
        self._save()

    def _save(self) -> None:
        """Write the state atomically and durably; on a full disk it is retried in the next step."""
        if self._has_lost_directory:
            return  # another directory may have this path now
        text = json.dumps(self.state).encode()
        path = self._dir / STATE_FILE
        for target in (path.with_suffix(".tmp"), *_matching(self._dir, "supervisor.spare*")):
            try:
                _write(target, text)
                target.replace(path)
            except OSError:
                continue
            self._saved = True
            _sync_folder(self._dir)
            return

    def _preallocate_spares(self) -> None:
        """Preallocate spare files, so that the end of the run can be recorded on a full disk."""
        size = 4096 + 64 * int(self._launch["processes"])
        for number in range(SPARES):
            with suppress(OSError), (self._dir / f"supervisor.spare{number}").open("wb") as spare:
                os.posix_fallocate(spare.fileno(), 0, size)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _matching(folder: Path, pattern: str) -> list[Path]:
    """Return the files of these names; none where the folder is just being deleted."""
    with suppress(OSError):
        return [*folder.glob(pattern)]
    return []


def _write(path: Path, text: bytes) -> None:
    """Overwrite the file in place, so that no new disk blocks are needed."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        view = memoryview(text)
        while view:
            view = view[os.write(descriptor, view) :]
        os.ftruncate(descriptor, len(text))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _ranks_of(launcher_pid: int, table: ProcessTable) -> dict[int, int]:
    """The pids of the ranks that torchrun has started, by the rank in their environment."""
    ranks = {}
    for pid in table.children(launcher_pid):
        rank = table.environment(pid).get("RANK", "")
        if rank.isdigit():
            ranks[int(rank)] = pid
    return ranks


def _by_rank(ranks: Mapping[int, int]) -> dict[str, int]:
    """Return ranks and their pids as the state file has them."""
    return {str(rank): pid for rank, pid in sorted(ranks.items())}


def _launcher_attempt(log: Path) -> int:
    """The number of torchrun's attempt: 10 for .../attempt_10/0/stdout.log."""
    return int(log.parts[-3].removeprefix("attempt_"))


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# Keep what all ranks of a node were doing when gloo or NCCL aborts one of them, before the others are ended.


class AbortedRanks:
    """Looks for ranks in the few seconds in which an aborted one waits."""

    def __init__(self, attempt_dir: Path) -> None:
        self._folder = attempt_dir / "probe"
        self._sizes: dict[str, int] = {}
        """Bytes of each stack file at the last look."""

    def look(self) -> None:
        """Keep the records of all ranks if one is being aborted."""
        for path in _matching(self._folder, "*.stack"):
            with suppress(OSError):
                size = path.stat().st_size
                if size != self._sizes.get(path.stem, 0):
                    self._sizes[path.stem] = size
                    if is_aborted(str(self._folder), path.stem):
                        keep_records(str(self._folder))


# The ranks that a script starts by itself, found by the records of the probe in them.

_HEAD_BYTES = 64 * 1024


def recorded_ranks(folder: Path) -> dict[int, int]:
    """Return rank -> pid of the processes that made a step or joined a process group, below the attempt's `folder`."""
    ranks = {}
    for path in sorted(_matching(folder / "probe", "*.jsonl"), key=_changed_at):
        # A record that has just been begun is empty, or ends within its first line.
        with suppress(OSError, ValueError, LookupError, TypeError), open_regular(path) as file:
            line = json.loads(file.read(_HEAD_BYTES).splitlines()[0])
            ranks[int(line["rank"])] = int(line["pid"])
    return ranks


def has_output(folder: Path, env: Mapping[str, str]) -> bool:
    """Whether the script reported figures; without the probe, which would see its ranks, whether it wrote anything."""
    if (folder / POINTS_FILE).exists():
        return True
    logs = _matching(folder / "logs", "rank*.*")
    return "RANKZERO_PROBE_DIR" not in env and any(_size(log) > 0 for log in logs)


def _changed_at(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

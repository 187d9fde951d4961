"""Finds an attempt's supervisor, and concludes the attempt's end when there is none.

supervisor.json may be missing: it was deleted, or the disk was full. A living supervisor writes it again; until then
it is found by its command line, and nothing is started or concluded while it lives."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from domain.clock import SYSTEM_CLOCK, Clock
from domain.messages import RankError, Reason, TaskReport
from worker.attempt.supervisor import recorded_ranks
from worker.node import processes
from worker.node.attempt_files import LAUNCH_FILE, LOCK_FILE, MEMBERS_FILE, STATE_FILE, SUPERVISOR_MODULE
from worker.node.process_table import ProcessTable
from worker.node.processes import Process
from worker.node.state_files import read_object

UNWRITTEN = "unwritten"
"""Marks a state that was derived from the processes instead of read from its file."""


def holds_lock(folder: Path, table: ProcessTable = processes) -> bool:
    """Whether a supervisor holds the lock of the attempt in this folder."""
    return table.is_locked(folder / LOCK_FILE)


def was_started(folder: Path) -> bool:
    """Whether a supervisor created the launcher's log: from then on the attempt is not started again."""
    logs = folder / "logs"
    return (logs / "launcher.err").exists() or any(logs.glob("rank*.err"))


def state_of(folder: Path, label: str, table: ProcessTable = processes, clock: Clock = SYSTEM_CLOCK) -> dict[str, Any]:
    """The state that a living supervisor would have written, derived from its processes; empty if there is none.

    `label` is RUN/ATTEMPT."""
    supervisor = _supervisor(folder, label, table)
    if supervisor is None:
        return {}
    launch = read_object(folder / LAUNCH_FILE)
    number = int(launch.get("processes", 1))
    has_ranks = len(_ranks(supervisor, launch.get("launcher"), table)) >= number
    if launch.get("launcher") == "python" and number > 1:
        has_ranks = bool(recorded_ranks(folder))
    return {
        UNWRITTEN: True, "pid": supervisor.pid, "start_ticks": supervisor.start_ticks,
        "boot_id": table.boot_id(), "state": "running" if has_ranks else "starting",
        "running_at": clock.wall() if has_ranks else None, "stop_requested_at": None, "ended_at": None,
    }  # fmt: skip


def is_supervised(state: Mapping[str, Any], table: ProcessTable = processes) -> bool:
    """Whether the supervisor that wrote this state is alive."""
    return bool(state["boot_id"] == table.boot_id() and table.is_alive(Process(state["pid"], state["start_ticks"])))


@dataclass(frozen=True)
class Guest:
    """The rules for a command that somebody else started: it is watched, and ended only where a person asks for it."""

    host: str
    """Its machine, which may be another one than that which sends its data."""
    look_only: bool = False
    """Whether nobody may stop it from the dashboard either."""


def end_of_unwritten(orphans: Orphans, now: float) -> TaskReport | None:
    """The end of an attempt without supervisor and file, once no process of it is left; None until then."""
    if not orphans.end(now):
        return None
    text = (
        "Its supervisor has ended, and its state file (supervisor.json in the attempt's directory) is missing. "
        "No process of the run is left on this node; its logs show how far it got."
    )
    return TaskReport(state="failed", reason=Reason.KILLED, message=text)


def end_on_other_boot(guest: Guest | None = None) -> TaskReport:
    """The end of an attempt whose machine restarted, or whose files lie on a disk that another machine shares."""
    own = socket.gethostname()
    text = f"The machine {own} restarted while the run was training on it."
    if guest is not None and guest.host != own:
        text = f"Its end was never recorded: {guest.host}, or the watching there, ended before it."
    return TaskReport(state="failed", reason=Reason.NODE_LOST, message=text, error=RankError(fault="node"))


def end_without_supervisor(folder: Path, guest: Guest | None = None) -> TaskReport:
    """The end of an attempt whose supervisor died before its launcher."""
    text = "The attempt's supervisor was killed, and its processes with it."
    if guest is not None:
        text = "The `rankzero watch` of its command was killed, and its processes with it."
    if is_attached(read_object(folder / LAUNCH_FILE)):
        text = "The process that watched itself was killed."
    elif not (folder / LOCK_FILE).exists():
        text = f"The attempt's directory was deleted on this node while it ran ({folder}); its processes were ended."
    return TaskReport(state="failed", reason=Reason.KILLED, message=text)


def is_attached(launch: Mapping[str, Any]) -> bool:
    """Whether its process watches itself, as a notebook does: no supervisor of ours, and no process of ours to end."""
    return bool(launch.get("attached"))


def _supervisor(folder: Path, label: str, table: ProcessTable) -> Process | None:
    """The process whose command line is that of this attempt's supervisor in this folder."""

    def is_supervisor(arguments: list[str]) -> bool:
        is_its_own = SUPERVISOR_MODULE in arguments and arguments[-3:-1] == [
            "--attempt",
            label,
        ]
        return is_its_own and Path(arguments[-1]).resolve() == folder.resolve()

    return next(iter(table.with_arguments(is_supervisor)), None)


def _ranks(supervisor: Process, launcher: object, table: ProcessTable) -> list[int]:
    """The rank processes on this node: the launcher itself, or torchrun's children."""
    launchers = table.children(supervisor.pid)
    if launcher == "python":
        return launchers
    ranks = [pid for launcher_pid in launchers for pid in table.children(launcher_pid)]
    return [pid for pid in ranks if table.environment(pid).get("RANK", "").isdigit()]


class SupervisorProcess(Protocol):
    """A supervisor just started, as far as it matters here."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...


Spawn = Callable[[Path, str, int, Mapping[str, str]], SupervisorProcess | None]
"""(attempt directory, run id, attempt number, the run's secrets as variables) -> the supervisor's process."""
Background = Callable[[Callable[[], None]], object]
log = logging.getLogger(__name__)

# Ends the processes of an attempt whose supervisor was killed: SIGTERM, then SIGKILL.

GRACE_S = 5.0
"""The time they have to save after the SIGTERM that followed the supervisor's death."""


class Orphans:
    """The processes of one attempt on this node, found by its id in their environment, and as kin of those that the
    supervisor has recorded in the attempt's folder: a process may have emptied its environment.

    What a process that watches itself was, or started before, is not the run's."""

    def __init__(
        self,
        folder: Path,
        run_id: str,
        attempt: int,
        node_rank: int,
        table: ProcessTable = processes,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._folder, self._table, self._clock = folder, table, clock
        self._run_id, self._attempt, self._node_rank = run_id, attempt, node_rank
        self._since: float | None = None

    def end(self, now: float) -> bool:
        """End them; returns True when none is left, and must be called again until then."""
        remaining = self._processes()
        if self._since is None:
            log.warning("attempt %s/%d lost its supervisor", self._run_id, self._attempt)
            self._since = now
            for process in remaining:
                self._table.send_signal(process, signal.SIGTERM)
        if now - self._since >= GRACE_S:
            self._table.kill_all(self._processes, 1.0, self._clock)
            remaining = self._processes()
        return not remaining

    def _processes(self) -> list[Process]:
        named = processes_of(self._folder, self._run_id, self._attempt, self._node_rank, self._table)
        is_alone = is_attached(read_object(self._folder / LAUNCH_FILE))
        recorded = [] if is_alone else _recorded(self._folder, self._table.boot_id())
        return sorted({*named, *self._table.kin([*recorded, *named])})


def processes_of(
    folder: Path, run_id: str, attempt: int, node_rank: int, table: ProcessTable = processes
) -> list[Process]:
    """Every process whose environment names the attempt in this folder, by the ids with which it was started.

    A watched command has them before the server gives it its place, which may have others."""
    env = read_object(folder / LAUNCH_FILE).get("env") or {}
    names = (processes.RUN_VARIABLE, processes.ATTEMPT_VARIABLE, processes.NODE_RANK_VARIABLE)
    run, number, rank = (env.get(name, own) for name, own in zip(names, (run_id, attempt, node_rank), strict=True))
    return table.of_attempt(str(run), int(number), int(rank))


def _recorded(folder: Path, boot_id: str) -> list[Process]:
    """The supervisor and its processes, as it recorded them since this machine's start."""
    state, members = read_object(folder / STATE_FILE), read_object(folder / MEMBERS_FILE)
    pairs = [(state, (state.get("pid"), state.get("start_ticks")))]
    pairs += [(members, tuple(pair)) for pair in members.get("members", ())]
    return [
        Process(pid, ticks)
        for source, (pid, ticks) in pairs
        if isinstance(pid, int) and isinstance(ticks, int) and source.get("boot_id") == boot_id
    ]

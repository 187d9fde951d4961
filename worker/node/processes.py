"""Finds and signals processes through /proc: living ones, descendants, those of an attempt."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from domain.clock import SYSTEM_CLOCK, Clock

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
FALLOC_FL_KEEP_SIZE = 1
RUN_VARIABLE = "RANKZERO_RUN_ID"
CHECK_VARIABLE = "RANKZERO_CHECK"
"""Marks programs of ours that check devices."""
ATTEMPT_VARIABLE = "RANKZERO_ATTEMPT"
NODE_RANK_VARIABLE = "RANKZERO_NODE_RANK"
_PROC = Path("/proc")
AUTOGROUP = _PROC / "self/autogroup"
_LIBC = ctypes.CDLL(None, use_errno=True)


class Process(NamedTuple):
    """Identifies one process until the next reboot: pids are reused, a pid with its start time is not."""

    pid: int
    start_ticks: int


class _Stat(NamedTuple):
    state: str
    parent: int
    session: int
    start_ticks: int


@cache
def boot_id() -> str:
    """The identity of the current boot; pids and start times from an earlier boot are meaningless."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def find(pid: int) -> Process | None:
    """The living process with this pid; None if there is none or it is a zombie."""
    stat = _stat(pid)
    return None if stat is None or stat.state in "ZX" else Process(pid, stat.start_ticks)


def is_alive(process: Process) -> bool:
    """Whether exactly this process, not a later one with the same pid, still runs."""
    return find(process.pid) == process


def children(pid: int) -> list[int]:
    """The pids of direct children, started by any thread."""
    pids: list[int] = []
    try:
        for task in (_PROC / str(pid) / "task").iterdir():
            pids += map(int, (task / "children").read_text().split())
    except OSError:  # it has ended, or the kernel has no such file
        pids = [child for child, stat in _all_stats() if stat.parent == pid]
    return pids


def descendants(pid: int) -> list[Process]:
    """All living descendants; for a subreaper these are all processes that it caused."""
    children_of: dict[int, list[tuple[int, _Stat]]] = {}
    for child, stat in _all_stats():
        children_of.setdefault(stat.parent, []).append((child, stat))
    living: list[Process] = []
    pending = [pid]
    while pending:
        for child, stat in children_of.get(pending.pop(), ()):
            pending.append(child)
            if stat.state not in "ZX":
                living.append(Process(child, stat.start_ticks))
    return living


def kin(recorded: Iterable[Process]) -> list[Process]:
    """The living ones of recorded processes, of the sessions that they lead or led, and all their descendants.

    Finds also what emptied its environment and lost its parents."""
    stats = dict(_all_stats())
    recorded_pids = {process.pid for process in recorded if _may_be(process, stats.get(process.pid))}
    pids = {pid for pid, stat in stats.items() if pid in recorded_pids or stat.session in recorded_pids} - {os.getpid()}
    more = pids
    while more := {pid for pid, stat in stats.items() if stat.parent in more} - pids:
        pids |= more
    return [Process(pid, stats[pid].start_ticks) for pid in sorted(pids) if stats[pid].state not in "ZX"]


def _may_be(process: Process, stat: _Stat | None) -> bool:
    """Whether the pid is not another process's by now; no process gets the number of a session that lives."""
    return stat is None or stat.start_ticks == process.start_ticks


def environment(pid: int) -> dict[str, str]:
    """The environment the process was started with; empty if it has ended or belongs to another user."""
    try:
        raw = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def holders(files: Collection[Path]) -> dict[Path, list[int]]:
    """The pids of processes that have each file open, lowest first; those of other users are not seen."""
    by_path = {os.path.realpath(file): file for file in files}
    pids = dict[Path, list[int]]()
    for folder in sorted(_PROC.glob("[0-9]*/fd"), key=lambda path: int(path.parent.name)) if files else ():
        with suppress(OSError):  # it has ended
            for descriptor in os.scandir(folder):
                with suppress(OSError):  # closed meanwhile
                    if file := by_path.get(str(Path(descriptor).readlink())):
                        pids.setdefault(file, []).append(int(folder.parent.name))
    return pids


def merged_environment(own: Mapping[str, str], launch: Mapping[str, str], program: str) -> dict[str, str]:
    """Merge the variables of a launch of this program over our own; PYTHONPATH joins both, the launch's first.

    The program's folder leads PATH, as in an activated environment: what a wrapper calls `torchrun` is found there."""
    paths = [env["PYTHONPATH"] for env in (launch, own) if env.get("PYTHONPATH")]
    merged = {**own, **launch} | ({"PYTHONPATH": ":".join(paths)} if paths else {})
    folder, _, _ = program.rpartition("/")
    others = [path for path in merged.get("PATH", os.defpath).split(":") if path != folder]
    return merged | ({"PATH": ":".join([folder, *others])} if folder else {})


def of_attempt(run_id: str, attempt: int, node_rank: int) -> list[Process]:
    """Every process whose environment names this node's part of the attempt, even if it was reparented.

    Several workers of one machine may each have a part."""
    values = {RUN_VARIABLE: run_id, ATTEMPT_VARIABLE: attempt, NODE_RANK_VARIABLE: node_rank}
    markers = {f"{name}={value}".encode() for name, value in values.items()}
    return _with_environment(markers.issubset)


def of_runs(run_ids: Iterable[str]) -> list[Process]:
    """Every process whose environment names one of these runs."""
    markers = {f"{RUN_VARIABLE}={run_id}".encode() for run_id in run_ids}
    return _with_environment(lambda variables: not markers.isdisjoint(variables))


def with_arguments(matches: Callable[[list[str]], bool]) -> list[Process]:
    """Every living process whose command line matches."""
    matching = []
    for pid in _pids():
        with suppress(OSError):
            raw = (_PROC / str(pid) / "cmdline").read_bytes()
            if matches([os.fsdecode(argument) for argument in raw.split(b"\0")[:-1]]) and (process := find(pid)):
                matching.append(process)
    return matching


def _with_environment(matches: Callable[[list[bytes]], bool]) -> list[Process]:
    """Every other living process whose NAME=VALUE entries match."""
    matching: list[Process] = []
    for pid in _pids():
        with suppress(OSError):
            if matches((_PROC / str(pid) / "environ").read_bytes().split(b"\0")) and pid != os.getpid():
                matching += filter(None, [find(pid)])
    return matching


def have_mapped(candidates: Iterable[Process], path: Path) -> bool:
    """Whether one of these processes can write to the file (or to a file in the folder) through an open mmap.

    Such writes do not change its time until the kernel carries them to the disk."""
    name = os.fsencode(path)
    for process in candidates:
        with suppress(OSError):
            for line in (_PROC / str(process.pid) / "maps").read_bytes().splitlines():
                fields = line.split(maxsplit=5)
                is_writable = len(fields) == 6 and fields[1][1:2] == b"w" and fields[1][3:4] == b"s"
                if is_writable and (fields[5] == name or fields[5].startswith(name + b"/")):
                    return True
    return False


def send_signal(process: Process, number: int) -> bool:
    """Signal exactly this process, never a later one with its pid; False if it has ended."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def kill_all(find_all: Callable[[], list[Process]], timeout_s: float, clock: Clock = SYSTEM_CLOCK) -> list[int]:
    """Send SIGKILL, at least once, until `find_all` returns nothing or the timeout passes; returns the pids that were
    killed."""
    killed: set[int] = set()
    deadline = clock.now() + timeout_s
    while remaining := find_all():
        for process in remaining:
            if send_signal(process, signal.SIGKILL):
                killed.add(process.pid)
        if clock.now() >= deadline:
            break
        clock.pause(0.02)
    return sorted(killed)


def become_subreaper() -> None:
    """Adopt orphaned descendants instead of leaving them to init."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: int) -> None:
    """Ask for this signal when the thread that started this process ends; survives exec."""
    _prctl(PR_SET_PDEATHSIG, number)


def began_session() -> bool:
    """Whether this process began its session, which else is that of a shell, with other programs in it."""
    return os.getsid(0) == os.getpid()


def set_session_niceness(niceness: int) -> bool:
    """Set the nice value of the own session, 0 to 19, where the kernel divides busy cores by session (autogroup): there
    those of processes count only within theirs. Every user may, also back to 0.

    Returns False where the kernel refuses for now: it takes ten changes a second on the whole machine."""
    try:
        AUTOGROUP.write_text(str(niceness))
    except OSError as error:  # what a container forbids, it forbids for good
        return not isinstance(error, BlockingIOError)
    return True


def set_policy(policy: int) -> None:
    """Set the scheduling policy of this process's threads; every user may choose SCHED_OTHER or SCHED_BATCH.

    A thread of SCHED_BATCH has its full share of a core, but waits until the one that runs there has had its turn."""
    for thread in (_PROC / "self/task").iterdir():
        with suppress(OSError):  # it has ended
            if os.sched_getscheduler(int(thread.name)) in (os.SCHED_OTHER, os.SCHED_BATCH):  # else somebody chose it
                os.sched_setscheduler(int(thread.name), policy, os.sched_param(0))


def reap_orphans(keep: int | None) -> None:
    """Collect the exit status of every dead child except `keep`, which has a waiter of its own."""
    while True:
        try:
            status = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if status is None or status.si_pid == keep:
            return
        with suppress(ChildProcessError):
            os.waitpid(status.si_pid, 0)


def preallocate(path: Path, size_bytes: int) -> None:
    """Preallocate disk blocks beyond the end of a file, so that appending works on a full disk (where supported)."""
    with suppress(OSError, AttributeError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            allocate = _LIBC.fallocate
            allocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
            allocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, size_bytes)
        finally:
            os.close(descriptor)


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) was refused")


def _pids() -> Iterator[int]:
    for entry in os.listdir(_PROC):  # noqa: PTH208  (names are enough, and this is called often)
        if entry.isdigit():
            yield int(entry)


def _all_stats() -> Iterator[tuple[int, _Stat]]:
    for pid in _pids():
        stat = _stat(pid)
        if stat is not None:
            yield pid, stat


def _stat(pid: int) -> _Stat | None:
    try:
        # By descriptor: this reads every process of the machine once a second. The program's name is in parentheses
        # and may itself contain parentheses and spaces.
        descriptor = os.open(f"{_PROC}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fields = os.read(descriptor, 4096).rpartition(b")")[2].split()
        finally:
            os.close(descriptor)
        return _Stat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


# Locks on files, which end with the process that holds them.

LOCK_TRIES, LOCK_PAUSE_S = 10, 0.05
"""Who only looks whether a lock is held has it for a moment."""


def take_lock(path: Path, clock: Clock = SYSTEM_CLOCK) -> int:
    """Create and lock a file; returns its open descriptor.

    Raises BlockingIOError where another process keeps it, OSError where it cannot be written."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, clock)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int, clock: Clock) -> None:
    for tries_left in reversed(range(LOCK_TRIES)):
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not tries_left:
                raise
            clock.pause(LOCK_PAUSE_S)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of this file; several may look at once."""
    with suppress(OSError):
        descriptor = os.open(
            path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        )  # a pipe may be in its place, and has a lock too
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False

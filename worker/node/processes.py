"""Processes as the kernel knows them: who lives, who descends from whom, who carries an attempt's name."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
FALLOC_FL_KEEP_SIZE = 1
RUN_VARIABLE = "RANKZERO_RUN_ID"
ATTEMPT_VARIABLE = "RANKZERO_ATTEMPT"
_PROC = Path("/proc")


class Process(NamedTuple):
    """One process for good: a pid is given out again, a pid with its start time is not (until a reboot)."""

    pid: int
    start_ticks: int


class _Stat(NamedTuple):
    state: str
    parent: int
    start_ticks: int


@cache
def boot_id() -> str:
    """Changes when the machine restarts: pids and start times from before mean nothing then."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def find(pid: int) -> Process | None:
    """The living process with this pid; a zombie is not alive."""
    stat = _stat(pid)
    return None if stat is None or stat.state in "ZX" else Process(pid, stat.start_ticks)


def is_alive(process: Process) -> bool:
    """Whether exactly this process, not a later one with its pid, still runs."""
    return find(process.pid) == process


def children(pid: int) -> list[int]:
    """Direct children, whatever thread started them."""
    found: list[int] = []
    try:
        for task in (_PROC / str(pid) / "task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except OSError:  # gone, or a kernel without this file
        found = [child for child, stat in _all_stats() if stat.parent == pid]
    return found


def descendants(pid: int) -> list[Process]:
    """Children, their children and so on; for a subreaper these are all processes it ever caused."""
    of_parent: dict[int, list[tuple[int, _Stat]]] = {}
    for child, stat in _all_stats():
        of_parent.setdefault(stat.parent, []).append((child, stat))
    found: list[Process] = []
    waiting = [pid]
    while waiting:
        for child, stat in of_parent.get(waiting.pop(), ()):
            waiting.append(child)
            if stat.state not in "ZX":
                found.append(Process(child, stat.start_ticks))
    return found


def environment(pid: int) -> dict[str, str]:
    """What the process was started with; empty when it is gone or somebody else's."""
    try:
        raw = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def of_attempt(run_id: str, attempt: int) -> list[Process]:
    """Every process that carries this attempt in its environment, wherever it was reparented to."""
    marks = {f"{RUN_VARIABLE}={run_id}".encode(), f"{ATTEMPT_VARIABLE}={attempt}".encode()}
    found = []
    for pid in _pids():
        with suppress(OSError):
            if marks <= set((_PROC / str(pid) / "environ").read_bytes().split(b"\0")):
                process = find(pid)
                if process is not None and pid != os.getpid():
                    found.append(process)
    return found


def with_arguments(fits: Callable[[list[str]], bool]) -> list[Process]:
    """Every living process whose command line fits."""
    found = []
    for pid in _pids():
        with suppress(OSError):
            raw = (_PROC / str(pid) / "cmdline").read_bytes()
            if fits([os.fsdecode(part) for part in raw.split(b"\0")[:-1]]) and (process := find(pid)):
                found.append(process)
    return found


def have_mapped(found: Iterable[Process], path: Path) -> bool:
    """Whether one of these processes can write to the file (or to a file in the folder) through an open mmap.

    Such writes do not change its time until the kernel carries them to the disk."""
    name = os.fsencode(path)
    for process in found:
        with suppress(OSError):
            for line in (_PROC / str(process.pid) / "maps").read_bytes().splitlines():
                fields = line.split(maxsplit=5)
                is_writable = len(fields) == 6 and fields[1][1:2] == b"w" and fields[1][3:4] == b"s"
                if is_writable and (fields[5] == name or fields[5].startswith(name + b"/")):
                    return True
    return False


def send_signal(process: Process, number: int) -> bool:
    """Signal exactly this process; False when it is gone. Never hits a later process with its pid."""
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


def kill_all(find_all: Callable[[], list[Process]], timeout_s: float) -> list[int]:
    """SIGKILL until `find_all` finds nobody (or time is up); returns the pids that were killed."""
    killed: set[int] = set()
    deadline = time.monotonic() + timeout_s
    while (left := find_all()) and time.monotonic() < deadline:
        for process in left:
            if send_signal(process, signal.SIGKILL):
                killed.add(process.pid)
        time.sleep(0.02)
    return sorted(killed)


def become_subreaper() -> None:
    """Orphaned descendants become our children instead of init's."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: int) -> None:
    """Get this signal when the thread that started us ends; holds across exec."""
    _prctl(PR_SET_PDEATHSIG, number)


def reap_orphans(keep: int | None) -> None:
    """Collect the exit status of every dead child but `keep`, whose own waiter wants it."""
    while True:
        try:
            status = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if status is None or status.si_pid == keep:
            return
        with suppress(ChildProcessError):
            os.waitpid(status.si_pid, 0)


def keep_room(path: Path, size_bytes: int) -> None:
    """Blocks for a file that is still shorter: appending so much works on a full disk, where supported."""
    with suppress(OSError, AttributeError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            allocate = ctypes.CDLL(None).fallocate
            allocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
            allocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, size_bytes)
        finally:
            os.close(descriptor)


def _prctl(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) was refused")


def _pids() -> Iterator[int]:
    for entry in os.listdir(_PROC):  # noqa: PTH208  (names are enough, and this is asked often)
        if entry.isdigit():
            yield int(entry)


def _all_stats() -> Iterator[tuple[int, _Stat]]:
    for pid in _pids():
        stat = _stat(pid)
        if stat is not None:
            yield pid, stat


def _stat(pid: int) -> _Stat | None:
    try:
        # The program's name stands in brackets and may itself hold brackets and spaces.
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return _Stat(fields[0].decode(), int(fields[1]), int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None

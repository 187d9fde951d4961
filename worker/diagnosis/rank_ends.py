"""Determine how each rank of a node ended, and which failed first. Pure."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, Literal

from domain.choices import Launcher
from domain.collectives import rank_list
from domain.device_memory import DeviceMemory
from domain.messages import RankError, Reason
from domain.text.formats import agree
from domain.text.json_values import parse_json
from worker.diagnosis.causes.collectives import Timeout, find_timeout, lost_peer
from worker.diagnosis.causes.exits import as_traceback, signal_name
from worker.diagnosis.causes.files import Workplace
from worker.diagnosis.causes.interfaces import Interfaces
from worker.diagnosis.causes.pytorch import NCCL
from worker.diagnosis.causes.reruns import Rerun
from worker.diagnosis.causes.tracebacks import PythonFailure, find_failure, last_line, shorten, split_by_rank, tail

ROOT_CAUSE = "Root Cause (first observed failure):"


class Blame(IntEnum):
    """How likely a rank failed by itself, in descending order."""

    OWN = 0
    WAITED = 1
    """It timed out waiting for another rank."""
    LOST_PEER = 2
    ENDED = 3
    """torchrun ended it because another rank had failed."""


@dataclass(frozen=True)
class RankEnd:
    """The end of one rank, from torchrun's report and its output."""

    rank: int
    exit_code: int | None = None
    at: float | None = None
    failure: PythonFailure | None = None
    text: str = ""
    """The end of its stderr, or of its stdout if that holds the traceback."""

    @property
    def signal(self) -> str | None:
        """The signal that ended it."""
        return signal_name(-self.exit_code) if self.exit_code is not None and self.exit_code < 0 else None

    @property
    def raised(self) -> PythonFailure | None:
        """The exception that ended it.

        A signal takes precedence over an older traceback, except SIGABRT and SIGTERM: an uncaught exception can
        end in SIGABRT, and torchrun sends SIGTERM to all ranks.
        """
        return self.failure if self.signal in (None, "SIGABRT", "SIGTERM") else None

    @cached_property
    def thrown(self) -> PythonFailure | None:
        """The C++ exception that ended it, such as one of NCCL's watchdog, if no Python exception did."""
        return find_failure(as_traceback(self.text)) if self.signal == "SIGABRT" and not self.raised else None

    @property
    def timeout(self) -> Timeout | None:
        """The collective operation that timed out, if any."""
        if self.raised is not None:
            return find_timeout(self.raised.all_text, self.raised) or self._timeout_of_watchdog
        return find_timeout(self.text, None) if self.signal in (None, "SIGABRT") else None

    @property
    def _timeout_of_watchdog(self) -> Timeout | None:
        """The timeout that NCCL's watchdog reports beside the traceback it causes."""
        return find_timeout(self.text, None) if "Watchdog caught collective" in self.text else None

    @property
    def blame(self) -> Blame:
        """How likely it failed by itself."""
        failure = self.raised or self.thrown
        text = failure.all_text if failure else self.text
        if self.signal not in (None, "SIGABRT", "SIGTERM"):
            return Blame.OWN
        if self.signal == "SIGTERM" and failure is None:
            return Blame.ENDED
        if failure is not None and any(cause.match(text) for cause in NCCL):
            return Blame.OWN
        if self.timeout is not None:
            return Blame.WAITED
        return Blame.LOST_PEER if lost_peer(text) else Blame.OWN


def rank_ends(facts: EndFacts) -> list[RankEnd]:
    """Return the ends of all failed ranks, torchrun's root cause first."""
    if facts.launcher == "python":
        return _ends_of_single_process(facts)
    ends = _ends_reported_by_torchrun(facts.launcher_err, facts.rank_errs, facts.rank_outs)
    if ends and (record := _read_error_file(facts.error_file)) is not None:
        root = ends[0]
        failure, text = root.failure or find_failure(record[0]), root.text or record[0]
        ends[0] = RankEnd(root.rank, root.exit_code, record[1] or root.at, failure, text)
    reported_ranks = {end.rank for end in ends}
    # If torchrun was killed, no rank failed first: exceptions in the output may have been caught.
    for rank, text in sorted(facts.rank_errs.items()) if facts.signal is None else ():
        if rank not in reported_ranks and (failure := find_failure(text)) is not None:
            ends.append(RankEnd(rank, None, None, failure, text))
    return ends


def first_failing(ends: list[RankEnd]) -> RankEnd | None:
    """Return the earliest end among the ranks that failed by themselves, else the one that torchrun names."""

    def order_of(numbered: tuple[int, RankEnd]) -> tuple[int, float, int]:
        number, end = numbered
        return min(end.blame, Blame.LOST_PEER), end.at or float("inf"), number

    ordered = sorted(enumerate(ends), key=order_of)
    return ordered[0][1] if ordered else None


# -- torchrun ----------------------------------------------------------------------------------


_BLOCK = re.compile(
    r"^\[\d+\]:\s*\n\s+time\s*: (?P<time>\S+)\n\s+host\s*: .*\n\s+rank\s*: (?P<rank>\d+) .*\n"
    r"\s+exitcode\s*: (?P<exit_code>-?\d+)",
    re.MULTILINE,
)


def _ends_reported_by_torchrun(launcher_err: str, errs: Mapping[int, str], outs: Mapping[int, str]) -> list[RankEnd]:
    ends: dict[int, RankEnd] = {}
    for rank, exit_code, at in _torchrun_failures(launcher_err):
        if rank not in ends:
            ends[rank] = _end(rank, exit_code, at, errs.get(rank, ""), outs.get(rank, ""))
    return list(ends.values())


def _torchrun_failures(launcher_err: str) -> Iterator[tuple[int, int, float | None]]:
    """Yield (rank, exit code, time) of torchrun's last summary, the root cause first."""
    others, marker, root = launcher_err.rpartition(ROOT_CAUSE)
    if marker:
        others = others.rpartition("\nFailures:\n")[2]
        for block in [*_BLOCK.finditer(root), *_BLOCK.finditer(others)]:
            yield int(block["rank"]), int(block["exit_code"]), _local_time(block["time"])


def _local_time(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%d_%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def _end(rank: int, exit_code: int | None, at: float | None, err: str, out: str) -> RankEnd:
    """Return the rank's end; stdout is used if stderr holds no traceback or nothing of the script."""
    failure = find_failure(err)
    if failure is None and (printed := find_failure(out)) is not None:
        return RankEnd(rank, exit_code, at, printed, out)
    return RankEnd(rank, exit_code, at, failure, err if last_line(err) else out)


def _read_error_file(error_file: str | None) -> tuple[str, float | None] | None:
    """Return (traceback, time) from the error file that `@record` wrote for the root cause."""
    try:
        message: Any = parse_json(error_file or "")["message"]
        if isinstance(message, str):
            return message, None
        extra = message.get("extraInfo") or {}
        traceback = str(extra.get("py_callstack") or message.get("message", ""))
        return traceback, float(extra["timestamp"]) if "timestamp" in extra else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


# -- plain python ------------------------------------------------------------------------------


_SPAWNED_EXIT = re.compile(
    r"process (?P<rank>\d+) terminated with (?:signal (?P<signal>\w+)|exit code (?P<exit_code>\d+))"
)


def _ends_of_single_process(facts: EndFacts) -> list[RankEnd]:
    """Return the ends of ranks that the script started itself: mp.spawn, Lightning, its own launcher."""
    own = min(facts.rank_errs, default=0)
    text, exit_code = facts.rank_errs.get(own, facts.launcher_err), _single_exit_code(facts)
    texts = split_by_rank(text)
    if nested_ends := _ends_reported_by_torchrun(text, texts, {}):
        return nested_ends
    main = _end(own, exit_code, None, text, facts.rank_outs.get(own, ""))
    if main.raised is None:
        return [main]
    if match := _SPAWNED_EXIT.search(main.raised.exception):
        code = -_number_of(match["signal"]) if match["signal"] else int(match["exit_code"])
        rank = int(match["rank"])
        return [RankEnd(rank, code, None, find_failure(texts.get(rank, "")), texts.get(rank, ""))]
    if main.raised.process is not None:
        return [RankEnd(main.raised.process, exit_code, None, main.raised, text)]
    failures = {rank: failure for rank, rank_text in texts.items() if (failure := find_failure(rank_text))}
    return [RankEnd(rank, exit_code, None, failure, texts[rank]) for rank, failure in sorted(failures.items())] or [
        main
    ]


def _single_exit_code(facts: EndFacts) -> int | None:
    number = _number_of(facts.signal)
    return -number if number else facts.exit_code


def _number_of(name: str | None) -> int:
    return signal.Signals[name].value if name and name in signal.Signals.__members__ else 0


# Explain ranks that ended with exit code 0 while the others continued, and so lost their connection. Pure.

_STEP = re.compile(r"\b(?:global[_ ])?(?:step|iter(?:ation)?)\b\W{0,3}(?P<step>\d+)", re.IGNORECASE)
_CLOSED = re.compile(r"Sending process (\d+) closing signal")
_NEXT = (
    "Let all ranks stop together: decide on one rank, tell the others (broadcast, or an all_reduce of a flag) and "
    "leave the loop after the same step; unequal numbers of batches need drop_last=True or model.join()."
)


def ranks_left_early(pids: dict[int, int], launcher_err: str, failed: set[int]) -> tuple[int, ...]:
    """Return the ranks of `pids` that neither failed nor were alive when torchrun ended the others."""
    closed = {int(pid) for pid in _CLOSED.findall(launcher_err)}
    return tuple(sorted(rank for rank, pid in pids.items() if rank not in failed and pid not in closed))


def explain_early_leaver(consequence: RankEnd, facts: EndFacts) -> Verdict:
    """Name the ranks that left; `consequence` is how another one ended, which only lost them."""
    ranks = facts.left_early
    text = facts.rank_outs.get(ranks[0], "")
    steps = _STEP.findall(text)
    after = f" after step {steps[-1]}" if steps else ""
    last = last_line(text, 120)
    their = agree(len(ranks), "its", "their")
    sentence = (
        f"{rank_list(ranks)} on {facts.node} ended by {agree(len(ranks), 'itself', 'themselves')} with exit code 0"
        f"{after} while rank {consequence.rank} continued; its connection error is a consequence"
        + (f"; {their} last line: {last}" if last else "")
    )
    error = RankError(
        rank=ranks[0],
        node_rank=facts.node_rank,
        exit_code=0,
        traceback=tail(consequence.text),
        at=consequence.at,
    )
    return Verdict("failed", Reason.SCRIPT_ERROR, shorten(sentence, 480), error, _NEXT)


# Facts about an attempt's end on one node, and the verdict on it.


@dataclass(frozen=True)
class EndFacts:
    """Facts from the supervisor and the logs of one node after all processes of the attempt have ended."""

    exit_code: int | None = None
    """Exit code of the launcher; None if it could not be started or its end was not observed."""
    signal: str | None = None
    """The signal that ended the launcher, e.g. SIGKILL."""
    launcher: Launcher = "torchrun"
    node: str = "this node"
    node_rank: int = 0
    world_size: int | None = None
    """Ranks over all nodes."""
    stop_requested: bool = False
    """A stop was requested before the end."""
    killed_by_us: bool = False
    """The supervisor killed the remaining processes after the grace period."""
    launch_error: str | None = None
    """The system's error if the launcher could not be started."""
    launcher_err: str = ""
    """The end of the launcher's own stderr."""
    rank_errs: Mapping[int, str] = field(default_factory=dict)
    """Global rank -> the end of its stderr."""
    rank_outs: Mapping[int, str] = field(default_factory=dict)
    """Global rank -> the end of its stdout, in which some scripts print their tracebacks."""
    error_file: str | None = None
    """The text of TORCHELASTIC_ERROR_FILE, which scripts with `@record` leave."""
    out_of_memory_kills: int = 0
    """Number of the attempt's processes killed by the kernel for lack of memory, if the kernel reports it."""
    memory_limit_bytes: int | None = None
    """Memory limit of its container or control group."""
    device_memory: Mapping[int, DeviceMemory] = field(default_factory=dict)
    """Global rank -> its device when its last allocation failed."""
    host_memory: str = ""
    """The node's memory in the last sample, in words."""
    workplace: Workplace = field(default_factory=Workplace)
    interfaces: Interfaces = field(default_factory=Interfaces)
    terminated_at: float | None = None
    """When a rank was first told to end by SIGTERM and handled it; nobody asked us for a stop."""
    ended_at: float | None = None
    rerun: Rerun | None = None
    """A process started by a rank that ran the script again, if that may be why the ranks did not continue."""
    left_early: tuple[int, ...] = ()
    """Global ranks of this node that ended by themselves with exit code 0 while others failed."""


@dataclass(frozen=True)
class Verdict:
    """How the attempt ended on this node."""

    state: Literal["succeeded", "failed", "stopped"]
    reason: Reason | None = None
    message: str | None = None
    error: RankError | None = None
    next_step: str | None = None

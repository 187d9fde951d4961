"""Recognise ranks that lost a peer or timed out waiting for one, and name the late ranks. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from domain.text.formats import agree, plural
from worker.diagnosis.causes.tracebacks import PythonFailure

_PEER_GONE = re.compile(
    r"Connection closed by peer|Connection reset by peer|Broken pipe|Connection refused"
    r"|remote process exited|ncclRemoteError|ncclSystemError|NCCL communicator was aborted|was aborted"
    r"|failed to recv, got 0 bytes|watchdog thread terminated with exception"
    r"|recvValue failed|sendBytes failed|Socket Timeout|Socket closed|typically caused by a remote worker"
    r"|Broken stale connection|Application timeout caused pair closure|Received a dump signal"
    r"|received errors while waiting for send/recv|Connection was likely closed|peer rank \d+ (?:died|exited)"
    r"|Observed flight recorder dump signal",
    re.IGNORECASE,
)
"""Messages of gloo, NCCL and the store in ranks that did not fail themselves."""
_BETWEEN_RANKS = re.compile(r"gloo|nccl|c10d|\bDist\w*Error|TCPStore|store->|ProcessGroup|\brank", re.IGNORECASE)


@dataclass(frozen=True)
class Timeout:
    """A collective operation that timed out on a rank."""

    operation: str
    """`all_reduce`, `the start (init_process_group)`, …"""
    seconds: float | None = None
    sequence: int | None = None
    late: tuple[int, ...] = ()
    """Ranks that the message names as missing."""
    missing: int = 0
    """Number of missing ranks if the message does not name them."""


def lost_peer(text: str) -> bool:
    """Whether the rank only lost its connection to another rank, not to a database or the like."""
    return bool(_PEER_GONE.search(text) and _BETWEEN_RANKS.search(text))


def find_timeout(text: str, failure: PythonFailure | None) -> Timeout | None:
    """Find the first timeout in a rank's output; `failure` holds the functions it had called."""
    for pattern in _PATTERNS:
        if match := pattern.search(text):
            return _timeout(match.groupdict(), failure)
    return None


def late_ranks(timeouts: Mapping[int, Timeout], texts: Mapping[int, str], ranks: Collection[int]) -> tuple[int, ...]:
    """Return the ranks the others waited for: those named, those with the least work enqueued, or the silent ones."""
    named = {rank for timeout in timeouts.values() for rank in timeout.late}
    if named:
        return tuple(sorted(named))
    enqueued = {rank: int(sequences[-1]) for rank, text in texts.items() if (sequences := _ENQUEUED.findall(text))}
    if len(set(enqueued.values())) > 1:
        return tuple(sorted(rank for rank, last in enqueued.items() if last == min(enqueued.values())))
    silent = {rank for rank in ranks if rank not in timeouts and not lost_peer(texts.get(rank, ""))}
    return tuple(sorted(silent)) if len(silent) < len(ranks) else ()


def describe(timeout: Timeout, late: Collection[int], place: str, is_all_here: bool) -> str:
    """`all_reduce (number 3) timed out after 600 s: rank 2 never arrived, train.py line 14`."""
    number = "" if timeout.sequence is None else f" (sequence number {timeout.sequence})"
    after = "" if timeout.seconds is None else f" after {timeout.seconds:g} s"
    if late:
        ranks = ", ".join(map(str, late))
        missing_ranks = f"{agree(len(late), 'rank', 'ranks')} {ranks} never arrived"
    elif timeout.missing:
        missing_ranks = f"{plural(timeout.missing, 'rank')} never arrived"
    else:
        missing_ranks = (
            "another rank never arrived" if is_all_here else "a rank, perhaps on another node, never arrived"
        )
    return f"{timeout.operation}{number} timed out{after}: {missing_ranks}{place}"


def next_step(timeout: Timeout, late: Collection[int]) -> str:
    """Return the next step for a timeout."""
    suspects = f"rank {next(iter(late))}" if len(late) == 1 else "the late ranks" if late else "each rank"
    if timeout.operation.startswith(_START):
        return (
            f"Check the log of {suspects}: it was still loading, or could not reach the others "
            "(a firewall, the wrong interface: --env GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME)."
        )
    return (
        f"Check what {suspects} did then (fewer batches than the others, a collective that only some ranks call, slow "
        "saving or loading); if the wait is intended, give init_process_group a longer timeout."
    )


_START = "the start"
_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<sequence>\d+), OpType=(?P<operation>\w+)"
        r".*?Timeout\(ms\)=(?P<ms>\d+)",
        r"Ranks? (?P<late>\d+(?:, ?\d+)*) failed to pass (?P<operation>monitoredBarrier) in (?P<ms>\d+) ?ms",
        r"Timed out after (?P<s>\d+) seconds waiting for clients\. (?P<have>\d+)/(?P<all>\d+) clients joined",
        r"wait timeout after (?P<ms>\d+) ?ms, keys: \S*/(?P<late>\d+)\s*$",
        r"wait timeout after (?P<ms>\d+) ?ms, keys: (?P<start>)",
        r"client socket has timed out after (?P<ms>\d+) ?ms while trying to connect(?P<start>)",
        r"Timed out waiting (?P<ms>\d+) ?ms for \w+ operation",
        r"Heartbeat monitor timed out",
    )
)
_ENQUEUED = re.compile(r"last enqueued (?:NCCL )?work: (\d+)")
_COLLECTIVES = frozenset(
    "all_reduce all_gather all_gather_into_tensor all_gather_object reduce_scatter reduce_scatter_tensor broadcast "
    "broadcast_object_list reduce scatter gather gather_object scatter_object_list all_to_all all_to_all_single "
    "barrier monitored_barrier send recv isend irecv batch_isend_irecv".split()
)

_NAMES = {"ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "monitoredBarrier": "monitored_barrier"}
_NAMES |= {"_ALLGATHER_BASE": "all_gather_into_tensor", "_REDUCE_SCATTER_BASE": "reduce_scatter_tensor"}


def _timeout(groups: Mapping[str, str | None], failure: PythonFailure | None) -> Timeout:
    late, have = groups.get("late"), groups.get("have")
    seconds = int(groups["ms"] or 0) / 1000 if groups.get("ms") else None
    return Timeout(
        operation=_operation(groups, failure),
        seconds=float(groups["s"] or 0) if have else seconds,
        sequence=int(groups["sequence"] or 0) if groups.get("sequence") else None,
        late=tuple(map(int, late.split(","))) if late else (),
        missing=int(groups["all"] or 0) - int(have) if have else 0,
    )


def _operation(groups: Mapping[str, str | None], failure: PythonFailure | None) -> str:
    functions = failure.functions if failure else ()
    operation = groups.get("operation") or ""
    named = next((name for name in functions if name in _COLLECTIVES), _NAMES.get(operation, operation.lower()))
    if named:
        return named
    if "init_process_group" in functions or groups.get("have") or groups.get("start") is not None:
        return f"{_START} (init_process_group)"
    if "backward" in functions:
        return "averaging the gradients (backward)"
    if any("sync" in function or function == "__init__" for function in functions):
        return "comparing the models (DistributedDataParallel)"
    return "a collective operation"

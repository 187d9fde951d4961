"""Pure: ranks that lost a peer, or waited for one in vain, and which one that was."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from worker.diagnosis.tracebacks.exceptions import PythonFailure

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
"""What gloo, NCCL and the store say in the ranks that did not fail themselves."""
_BETWEEN_RANKS = re.compile(
    r"gloo|nccl|c10d|\bDist\w*Error|TCPStore|store->|ProcessGroup|\brank", re.IGNORECASE
)


@dataclass(frozen=True)
class Timeout:
    """What a rank says that waited in vain."""

    operation: str
    """`all_reduce`, `the start (init_process_group)`, …"""
    seconds: float | None = None
    sequence: int | None = None
    late: tuple[int, ...] = ()
    """The ranks that it names as missing."""
    missing: int = 0
    """How many did not come, where it knows no more."""


def lost_its_peer(text: str) -> bool:
    """The rank only noticed that another one was gone; a database that is away is not meant."""
    return bool(_PEER_GONE.search(text) and _BETWEEN_RANKS.search(text))


def find_timeout(text: str, failure: PythonFailure | None) -> Timeout | None:
    """The first time-out in what a rank wrote; `failure` knows what it had called."""
    for pattern in _PATTERNS:
        if found := pattern.search(text):
            return _timeout(found.groupdict(), failure)
    return None


def who_is_late(
    timeouts: Mapping[int, Timeout], texts: Mapping[int, str], ranks: Collection[int]
) -> tuple[int, ...]:
    """The ranks the others waited for: those that are named, those that came less far, or the silent ones."""
    named = {rank for timeout in timeouts.values() for rank in timeout.late}
    if named:
        return tuple(sorted(named))
    enqueued = {rank: int(found[-1]) for rank, text in texts.items() if (found := _ENQUEUED.findall(text))}
    if len(set(enqueued.values())) > 1:
        return tuple(sorted(rank for rank, last in enqueued.items() if last == min(enqueued.values())))
    silent = {rank for rank in ranks if rank not in timeouts and not lost_its_peer(texts.get(rank, ""))}
    return tuple(sorted(silent)) if len(silent) < len(ranks) else ()


def describe(timeout: Timeout, late: Collection[int], place: str, is_all_here: bool) -> str:
    """`all_reduce (number 3) timed out after 600 s: rank 2 never arrived, train.py line 14`."""
    number = "" if timeout.sequence is None else f" (sequence number {timeout.sequence})"
    after = "" if timeout.seconds is None else f" after {timeout.seconds:g} s"
    if late:
        ranks = ", ".join(map(str, late))
        who = f"rank{'s' if len(late) > 1 else ''} {ranks} never arrived"
    elif timeout.missing:
        who = f"{timeout.missing} rank{'s' if timeout.missing > 1 else ''} never arrived"
    else:
        who = (
            "another rank never arrived" if is_all_here else "a rank, perhaps on another node, never arrived"
        )
    return f"{timeout.operation}{number} timed out{after}: {who}{place}"


def next_step(timeout: Timeout, late: Collection[int]) -> str:
    """What to look at."""
    who = f"rank {next(iter(late))}" if len(late) == 1 else "the late ranks" if late else "each rank"
    if timeout.operation.startswith(_START):
        return (
            f"Look at the log of {who}: it was still loading, or could not reach the others "
            "(a firewall, the wrong interface: --env GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME)."
        )
    return (
        f"Look at what {who} did then (fewer batches than the others, a collective that only some ranks call, slow "
        "saving or loading); where the wait is meant, give init_process_group a longer timeout."
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


def _timeout(found: Mapping[str, str | None], failure: PythonFailure | None) -> Timeout:
    late, have = found.get("late"), found.get("have")
    seconds = int(found["ms"] or 0) / 1000 if found.get("ms") else None
    return Timeout(
        operation=_operation(found, failure),
        seconds=float(found["s"] or 0) if have else seconds,
        sequence=int(found["sequence"] or 0) if found.get("sequence") else None,
        late=tuple(map(int, late.split(","))) if late else (),
        missing=int(found["all"] or 0) - int(have) if have else 0,
    )


def _operation(found: Mapping[str, str | None], failure: PythonFailure | None) -> str:
    called = failure.functions if failure else ()
    told = found.get("operation") or ""
    named = next((name for name in called if name in _COLLECTIVES), _NAMES.get(told, told.lower()))
    if named:
        return named
    if "init_process_group" in called or found.get("have") or found.get("start") is not None:
        return f"{_START} (init_process_group)"
    if "backward" in called:
        return "averaging the gradients (backward)"
    if any("sync" in function or function == "__init__" for function in called):
        return "comparing the models (DistributedDataParallel)"
    return "a collective operation"

"""Have the collectives of this node's ranks compared with the other nodes', in a hang and after a failure."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from domain.clock import SYSTEM_CLOCK, Clock
from domain.collectives import MAX_CALLS, Collective, CollectivesVerdict, NodeCollectives, RankCollectives
from domain.messages import Finding
from domain.text.json_values import parse_json
from worker.monitor.hangs import PythonFrame, RankStatus, users_frame
from worker.monitor.probe_reader import ProbeReader, RankRecorder, parse_stack
from worker.node.regular_files import bytes_of, open_regular

log = logging.getLogger(__name__)
KIND = "collectives differ"
Align = Callable[[NodeCollectives], CollectivesVerdict | None]
"""Compares this node's collectives with those of the other nodes."""


class CollectivesWatch:
    """Remembers what was sent last, so that equal records are sent only until there is a verdict."""

    def __init__(self, folder: Path, probe: ProbeReader, align: Align, clock: Clock = SYSTEM_CLOCK) -> None:
        self._folder, self._probe, self._align, self._clock = folder, probe, align, clock
        self._sent: Sequence[RankCollectives] | None = None
        self._verdict: CollectivesVerdict | None = None
        self.end: Finding | None = None
        """Why ranks ended in a collective, if another one did not come to it."""

    def align(self, records: Sequence[RankCollectives]) -> CollectivesVerdict | None:
        """Return where the ranks of all nodes left their common path in a hang."""
        if records and (self._verdict is None or records is not self._sent):
            self._sent = records
            self._verdict = self._align(NodeCollectives(is_stalled=True, ranks=list(records)))
        return self._verdict

    def discard(self) -> None:
        """Withdraw the records: the ranks step again."""
        if self._sent is not None:
            self._sent, self._verdict = None, None
            self._align(NodeCollectives())

    def judge_end(self) -> list[Finding]:
        """Return a finding where ranks ended in a collective because another one did not come to it."""
        records = self._left_records()
        if not any(record.failure for record in records):
            return []
        verdict = self.align(records)
        by_rank = {record.rank: record for record in records}
        is_explained = (
            verdict is not None
            and verdict.kind == "left"
            and any(rank not in by_rank or by_rank[rank].failure for rank in verdict.ranks)
        )
        self.end = None if verdict is None or is_explained else _finding(verdict)
        return [self.end] if self.end else []

    def _left_records(self) -> list[RankCollectives]:
        statuses, recorders = list(self._probe.latest().values()), self._probe.recorders()
        try:
            return read_left_records(self._probe.folder, self._folder / "logs", statuses, recorders, self._clock)
        except Exception:  # what a rank left may be anything; the attempt's end is still reported
            log.exception("the records of collectives that ranks left could not be read")
            return []


def _finding(verdict: CollectivesVerdict) -> Finding:
    return Finding(
        kind=KIND,
        evidence=verdict.sentence,
        meaning="The ranks did not call the same collectives in the same order, so some waited for a call that "
        "never came.",
        fix="Check the lines above: a collective under an if that not all ranks take, unequal numbers of batches, "
        "tensors whose size or type depends on the rank.",
    )


# Ask each rank of a node for its record of collectives, within a limit; of ended ranks read what they left.

LIMIT_S = 3.0
"""A rank in teardown, or stopped, may not answer."""
MAX_BYTES = 32 * 1024 * 1024
READ_BYTES = 1024 * 1024
MAX_AT_ONCE = 16
LOG_TAIL_BYTES = 16 * 1024
_SIZES_DIFFER = re.compile(
    r"(?:Received data size doesn't match expected size|enforce fail at \S*gloo\S*\] op\.)[^\n]{0,200}"
)


def fetch_records(
    folder: Path,
    statuses: Sequence[RankStatus],
    frames: Mapping[int, Sequence[PythonFrame]],
    recorders: Mapping[int, RankRecorder],
    clock: Clock,
) -> list[RankCollectives]:
    """Return the record of each rank that takes part in a group of several; `folder` is the probe's."""
    members = [status for status in statuses if status.world_size > 1]
    if not members:
        return []
    with ThreadPoolExecutor(min(MAX_AT_ONCE, len(members)), "collectives") as pool:
        dumps = list(pool.map(lambda status: _dump_of(folder, status.pid, clock), members))
    return [
        _record(status, dump, frames.get(status.rank, ()), recorders.get(status.rank, RankRecorder()), clock.wall())
        for status, dump in zip(members, dumps, strict=True)
    ]


def read_left_records(
    folder: Path, logs: Path, statuses: Sequence[RankStatus], recorders: Mapping[int, RankRecorder], clock: Clock
) -> list[RankCollectives]:
    """Return the records that ended ranks left; of a rank that gloo aborted because of a size, that alone."""
    records = []
    for status in statuses:
        dump = _left_dump(folder, status.pid)
        if dump is None and (requested := _requested_dump(folder, status.pid)) is not None:
            dump = {**requested, "stack": _last_stack(folder, status.pid)}
        if dump is None or "failure" not in dump:
            aborted = _aborted(folder, logs, status)
            dump = {**(dump or {}), **aborted} if aborted is not None else dump
        if dump is not None and status.world_size > 1:
            recorder = recorders.get(status.rank, RankRecorder())
            records.append(_record(status, dump, (), recorder, clock.wall()))
    return records


def _dump_of(folder: Path, pid: int, clock: Clock) -> dict[str, Any] | None:
    return _answer(folder, pid, clock) or _left_dump(folder, pid)


def _answer(folder: Path, pid: int, clock: Clock) -> dict[str, Any] | None:
    """Ask the rank through a descriptor of the folder: a socket's path has at most 107 bytes."""
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with closing(_RankConnection(f"/proc/self/fd/{descriptor}/{pid}.sock")) as connection:
            return _read_limited(connection, clock)
    except (HTTPException, OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


class _RankConnection(HTTPConnection):
    """HTTP on a rank's UNIX socket."""

    def __init__(self, path: str) -> None:
        super().__init__("rank", timeout=LIMIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(LIMIT_S)
        self.sock.connect(self._path)


def _read_limited(connection: HTTPConnection, clock: Clock) -> dict[str, Any] | None:
    deadline, body = clock.now() + LIMIT_S, bytearray()
    connection.request("POST", "/handler/fr_trace_json", headers={"Connection": "close", "Content-Length": "0"})
    response = connection.getresponse()
    while part := response.read(READ_BYTES):
        body += part
        if len(body) > MAX_BYTES or clock.now() > deadline:
            return None
    dump = parse_json(body) if response.status == 200 else None
    return dump if isinstance(dump, dict) else None


def _left_dump(folder: Path, pid: int) -> dict[str, Any] | None:
    """Return the dump that the rank wrote at its exit, with `failure` and `stack`."""
    with suppress(OSError, ValueError):
        left = parse_json(bytes_of(folder / f"{pid}.collectives"))
        if isinstance(left, dict):
            return {**left["record"], "failure": left["failure"], "stack": left["stack"]}
    return None


def _aborted(folder: Path, logs: Path, status: RankStatus) -> dict[str, Any] | None:
    """Return gloo's sentence and the rank's stack where gloo aborted it because sizes differ."""
    with suppress(OSError), open_regular(logs / f"rank{status.rank}.err") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
        if match := _SIZES_DIFFER.search(file.read().decode(errors="replace")):
            return {"failure": match[0], "stack": _last_stack(folder, status.pid)}
    return None


def _requested_dump(folder: Path, pid: int) -> dict[str, Any] | None:
    """Return the dump that was asked from the rank when another one failed."""
    with suppress(OSError, ValueError):
        dump = parse_json(bytes_of(folder / f"{pid}.calls"))
        return dump if isinstance(dump, dict) else None
    return None


def _last_stack(folder: Path, pid: int) -> list[PythonFrame]:
    with suppress(OSError):
        return parse_stack(bytes_of(folder / f"{pid}.stack").decode(errors="replace"))
    return []


def _record(
    status: RankStatus, dump: dict[str, Any] | None, frames: Sequence[PythonFrame], recorder: RankRecorder, at: float
) -> RankCollectives:
    dump = dump or {}
    failure = str(dump.get("failure", ""))[:500]
    stack = [PythonFrame(*frame) for frame in dump.get("stack") or ()] or frames or status.frames
    frame = users_frame(stack)
    return RankCollectives(
        rank=status.rank,
        world_size=status.world_size,
        at=at,
        calls=fail_last(parse_calls(dump), failure),
        groups=dict(recorder.groups),
        is_read="entries" in dump or "version" in dump,
        why_not=recorder.why_not[:300],
        line=str(frame)[:500] if frame else "",
        doing=status.doing,
        ended=status.ended or "failure" in dump,
        failure=failure,
    )


# Read torch's Flight Recorder dumps. Pure.

_COMMUNICATION = re.compile(r"gloo|nccl|c10d|Dist\w*Error|ProcessGroup|Timed out|remote worker", re.IGNORECASE)


def parse_calls(dump: dict[str, Any]) -> list[Collective]:
    """Return the latest calls of a dump, oldest first, without those between two ranks."""
    calls = []
    for entry in dump.get("entries") or ():
        with suppress(KeyError, TypeError, ValueError, IndexError):
            if not entry["is_p2p"]:
                calls.append(_parse_call(entry))
    return calls[-MAX_CALLS:]


def fail_last(calls: list[Collective], failure: str) -> list[Collective]:
    """Reopen the last call where it failed: torch retires it with its error."""
    if not calls or not _COMMUNICATION.search(failure):
        return calls
    return [*calls[:-1], calls[-1].model_copy(update={"retired": False})]


def _parse_call(entry: dict[str, Any]) -> Collective:
    group, description = entry["process_group"]
    return Collective(
        group=group,
        description=description,
        sequence=entry["collective_seq_id"],
        operation=entry["profiling_name"].partition(":")[2] or entry["profiling_name"],
        sizes=entry["input_sizes"][:64],
        dtypes=entry["input_dtypes"][:64],
        retired=entry["retired"] or entry["state"] == "completed",
        called_at=entry["time_created_ns"] / 1e9,
    )

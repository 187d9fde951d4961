"""A rank's log among the mirrored files, and its decoding as text that arrives in pieces."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from dashboard.errors import Rejection
from db.attempts import attempt_queries
from db.engine import Store
from domain.views import FileView, RunView


@dataclass(frozen=True)
class LogFile:
    """The part of a log that has been mirrored."""

    file_id: int
    size_bytes: int


Stream = Literal["out", "err"]
SomeStream = Literal["out", "err", "both"]
LAUNCHER = "launcher"
ALL = "all"
_LOG = re.compile(r"logs/(?:rank(\d{1,7})|launcher)\.(out|err)")


def check_rank(run: RunView, rank: str) -> None:
    """Raises Rejection for a rank that none of the run's attempts can have."""
    ranks = run.spec.world_size
    if rank != LAUNCHER and not (rank.isascii() and rank.isdigit() and int(rank[:9]) < ranks):
        valid_ranks = "rank 0" if ranks == 1 else f"ranks 0 to {ranks - 1}"
        raise Rejection(404, f"rank: run {run.id} has {valid_ranks} and `{LAUNCHER}`, not {rank[:40]!r}.", "rank")


def find_log(store: Store, run_id: str, attempt: int, rank: str, stream: Stream) -> LogFile | None:
    """The newest generation of a log; None while nothing of it has arrived."""
    return find_logs(store, run_id, attempt).get((LAUNCHER if rank == LAUNCHER else int(rank), stream))


def find_logs(store: Store, run_id: str, attempt: int) -> dict[tuple[int | str, str], LogFile]:
    """The newest generation of each log of an attempt, by rank and stream."""
    return newest_logs(attempt_queries.files(store, run_id, attempt))


def newest_logs(files: Iterable[FileView]) -> dict[tuple[int | str, str], LogFile]:
    """The newest generation of each log among the files of one attempt, by rank and stream."""
    newest: dict[tuple[int | str, str], FileView] = {}
    for file in files:
        if (match := _LOG.fullmatch(file.path)) is not None:
            log = (LAUNCHER if match[1] is None else int(match[1]), match[2])
            current = newest.get(log, file)
            newest[log] = max(current, file, key=lambda f: (-f.node_rank, f.generation))
    return {log: LogFile(file.id, file.size_bytes) for log, file in newest.items()}


class TextPieces:
    """Decodes text piece by piece; a character split between two pieces is completed by the second."""

    def __init__(self, starts_inside: bool = False) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._starts_inside = starts_inside

    def decode(self, piece: bytes) -> str:
        """The text that the piece completes."""
        if self._starts_inside and piece:
            self._starts_inside = False
            piece = piece.lstrip(bytes(range(0x80, 0xC0))) if piece[0] in range(0x80, 0xC0) else piece
        return self._decoder.decode(piece)

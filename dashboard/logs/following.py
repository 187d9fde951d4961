"""Several logs of a run as one, from their last lines on, by the lines' time of arrival."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool

from dashboard.logs.merge import Line, LogSource, lines_before, lines_from
from dashboard.logs.sources import merged_sources, page
from dashboard.logs.stored_logs import SomeStream
from dashboard.service.service import Service

TAIL_BYTES = 64 * 1024
PIECE_BYTES = 256 * 1024
MOST_BEHIND_BYTES = 4 * 1024 * 1024
"""A page that falls further behind the logs restarts from their last lines."""


class FollowedLogs:
    """The merged lines that were written since the last call."""

    def __init__(self, service: Service, run_id: str, rank: str, stream: SomeStream, attempt: int | None) -> None:
        self._service, self._run_id = service, run_id
        self._rank, self._stream, self._requested_attempt = rank, stream, attempt
        self._attempt: int | None = None
        self._files: dict[int, int] = {}
        self._offsets: dict[int, int] = {}

    async def new_messages(self) -> list[dict[str, Any]]:
        """Messages with the lines written since the last call."""
        return await run_in_threadpool(self._read)

    def _read(self) -> list[dict[str, Any]]:
        service, run_id = self._service, self._run_id
        attempt = self._requested_attempt or service.latest_attempt(run_id)
        sources = merged_sources(service, run_id, attempt, self._rank, self._stream)
        offsets = [self._offsets.get(source.order, 0) for source in sources]
        behind = sum(s.whole_bytes - offset for s, offset in zip(sources, offsets, strict=True))
        if attempt != self._attempt or self._has_other_files(sources) or behind > MOST_BEHIND_BYTES:
            self._attempt = attempt
            return [self._tail(sources)]
        messages = []
        while lines := lines_from(sources, offsets, PIECE_BYTES):
            messages.append(self._message(sources, lines))
        self._remember(sources, offsets)
        return messages

    def _has_other_files(self, sources: Sequence[LogSource]) -> bool:
        return any(self._files.get(source.order, source.file_id) != source.file_id for source in sources)

    def _tail(self, sources: Sequence[LogSource]) -> dict[str, Any]:
        ends = [source.whole_bytes for source in sources]
        self._remember(sources, ends)
        return self._message(sources, lines_before(sources, list(ends), TAIL_BYTES), reset=True)

    def _remember(self, sources: Sequence[LogSource], offsets: Sequence[int]) -> None:
        self._files = {source.order: source.file_id for source in sources}
        self._offsets = {source.order: at for source, at in zip(sources, offsets, strict=True)}

    def _message(self, sources: Sequence[LogSource], lines: Sequence[Line], reset: bool = False) -> dict[str, Any]:
        choice = {"rank": self._rank, "stream": self._stream, "attempt": self._attempt}
        return {"type": "log", **choice, "reset": reset, **page(sources, lines)}

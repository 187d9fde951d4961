"""The live channel: one WebSocket a page carries the run, its curves and one of its logs."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ValidationError
from sqlalchemy.exc import DBAPIError
from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocket, WebSocketDisconnect

from dashboard.api.context import TheService
from dashboard.errors import Rejection
from dashboard.json_responses import json_text
from dashboard.live.hub import Message, Viewer
from dashboard.logs.following import FollowedLogs
from dashboard.logs.sources import is_merged
from dashboard.logs.stored_logs import ALL, SomeStream, Stream, TextPieces, check_rank, find_log
from dashboard.service.service import Service
from db.engine import StoreGone
from db.metrics.curves import to_json_points
from db.queries import run_queries
from db.records.exceptions import NoSuchRun
from domain.views import SeriesView

router = APIRouter(prefix="/api")
FIRST_PICTURE_POINTS = 2000
LOG_TAIL_BYTES = 64 * 1024
LOG_PIECE_BYTES = 256 * 1024
LOG_MOST_BEHIND_BYTES = 4 * 1024 * 1024
"""A log that grows faster than the page can take it is shown again from its last lines."""
LOG_KINDS = {"log", "run", "asked"}
"""After these a followed log may be longer, or another one (of a new attempt)."""
RUN_EVERY_S = 0.25
UNKNOWN_RUN, RESTARTING = 4404, 1012


class LogChoice(BaseModel):
    """The log a page shows."""

    rank: int | str
    stream: SomeStream
    """A rank that is `all`, or both streams: lines of several logs by the time at which they arrived."""
    attempt: int | None = None


class Subscription(BaseModel):
    """What a page asks for; it may ask again at any time: by `want` for other series alone."""

    type: str
    since: dict[str, float] | None = None
    logs: LogChoice | None = None
    series: list[str] | None = None
    """Names of the series whose points it shows; without it all of them, whose names are then not told before."""


@router.websocket("/live")
async def live(websocket: WebSocket, service: TheService, run: str = "") -> None:
    """Everything about one run as it happens."""
    await websocket.accept()
    try:
        with service.hub.viewer(run) as viewer:
            if service.peers is not None:
                await run_in_threadpool(service.peers.follow, run)
            await _Session(service, websocket, run, viewer).serve()
    except NoSuchRun:
        await websocket.close(UNKNOWN_RUN)
    except (DBAPIError, StoreGone):  # the store is away; the page connects again and goes on where it was
        with suppress(RuntimeError):
            await websocket.close(RESTARTING)
    except (WebSocketDisconnect, RuntimeError):  # the page is gone, perhaps in the middle of a send
        return


class _Session:
    def __init__(self, service: Service, websocket: WebSocket, run_id: str, viewer: Viewer) -> None:
        self._service, self._websocket = service, websocket
        self._run_id, self._viewer = run_id, viewer
        self._has_picture = False
        self._wanted: set[str] | None = None
        self._named: set[str] = set()
        self._shown_until: dict[tuple[str, int], float] = {}
        self._log: _FollowedLog | FollowedLogs | None = None
        self._run_sent: tuple[float, str] = (float("-inf"), "")
        self._later: asyncio.TimerHandle | None = None

    async def serve(self) -> None:
        """Until the page or the server goes."""
        await self._send_run()
        listening = asyncio.create_task(self._listen())
        try:
            while not self._service.hub.closing and not listening.done():
                await self._pass_on(await self._viewer.take())
            if not listening.done():
                await self._websocket.close(RESTARTING)
        finally:
            if self._later is not None:
                self._later.cancel()
            listening.cancel()
            with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await listening

    async def _listen(self) -> None:
        """What the page asks for joins the queue of what happens, so that answers keep their order."""
        try:
            async for text in self._websocket.iter_text():
                with suppress(ValidationError, ValueError):
                    asked = Subscription.model_validate(json.loads(text))
                    self._viewer.put({"type": "asked", "asked": asked})
        finally:
            self._viewer.wake()

    async def _pass_on(self, messages: list[Message]) -> None:
        if self._viewer.needs_resync():
            self._has_picture = False
            self._wanted = None
            await self._send({"type": "resync"})
        kinds = {message["type"] for message in messages}
        for message in messages:
            if message["type"] == "series":
                await self._send_delta(message)
            elif message["type"] == "asked":
                await self._answer(message["asked"])
        for kind in ("checkpoints", "history", "deleted"):
            if kind in kinds:
                await self._send({"type": kind})
        if "deleted" not in kinds:
            await self._send_run()
        if self._log is not None and kinds & LOG_KINDS:
            for piece in await self._log.news():
                await self._send(piece)

    async def _answer(self, asked: Subscription) -> None:
        await self._show_series(asked)
        if asked.type == "want":
            return
        self._log = None
        if asked.logs is not None:
            run, rank, stream = self._service.run, asked.logs.rank, asked.logs.stream
            try:
                if rank != ALL:
                    check_rank(await run_in_threadpool(run, self._run_id), str(rank))
            except Rejection:
                return
            if stream == "both" or is_merged(str(rank), stream):
                logs = (str(rank), stream, asked.logs.attempt)
                self._log = FollowedLogs(self._service, self._run_id, *logs)
            else:
                self._log = _FollowedLog(self._service, self._run_id, rank, stream, asked.logs.attempt)

    async def _show_series(self, asked: Subscription) -> None:
        """What the page has no picture of yet; all names first, where it chooses among them."""
        shown = self._wanted or set()
        self._wanted = None if asked.series is None else set(asked.series)
        if self._wanted is None:
            if not self._has_picture:
                await self._send_picture(asked.since or {}, None)
        else:
            if not self._has_picture:
                store, run_id = self._service.store, self._run_id
                await self._tell_names(await run_in_threadpool(run_queries.series_sources, store, run_id))
            if self._wanted - shown:
                await self._send_picture(asked.since or {}, self._wanted - shown)
        self._has_picture = True

    async def _tell_names(self, sources: dict[str, str]) -> None:
        self._named |= set(sources)
        await self._send({"type": "names", "series": sources})

    async def _send_picture(self, since: dict[str, float], names: set[str] | None) -> None:
        found = await run_in_threadpool(
            run_queries.series,
            self._service.store,
            self._run_id,
            names,
            "all",
            max_points=FIRST_PICTURE_POINTS,
        )
        for text in await run_in_threadpool(self._picture, found, since):
            await self._websocket.send_text(text)

    def _picture(self, found: dict[str, SeriesView], since: dict[str, float]) -> list[str]:
        """One message per attempt: first what was never seen, or what came after it where nothing is left out."""
        by_attempt: dict[int, dict[str, Any]] = {}
        for name, view in found.items():
            is_exact = len(view.points) == view.count
            for segment in view.segments:
                if segment.points:
                    self._shown_until[name, segment.attempt] = segment.points[-1][2]
                seen = since.get(f"{segment.attempt}:{view.source}:{_tag(name, view.source)}")
                goes_on = seen is not None and is_exact
                points = [p for p in segment.points if seen is None or not goes_on or p[2] > seen]
                by_attempt.setdefault(segment.attempt, {})[name] = {
                    "source": view.source,
                    "attempt": segment.attempt,
                    "points": to_json_points(points),
                    "reset": not goes_on,
                    "not_finite_since": view.not_finite_since if segment is view.segments[-1] else None,
                }
        return [json_text({"type": "series", "series": series}) for _, series in sorted(by_attempt.items())]

    async def _send_delta(self, message: Message) -> None:
        if not self._has_picture:
            return
        changes = message["series"]
        if self._wanted is not None:
            if new := {name: change["source"] for name, change in changes.items() if name not in self._named}:
                await self._tell_names(new)
            changes = {name: change for name, change in changes.items() if name in self._wanted}
        is_known = any((name, change["attempt"]) in self._shown_until for name, change in changes.items())
        if not is_known and len(changes) == len(message["series"]):
            await self._websocket.send_text(message["text"])
            return
        # What the first picture already had may still have been on its way to this queue.
        fresh = {name: self._not_shown(name, change) for name, change in changes.items()}
        fresh = {name: change for name, change in fresh.items() if change["points"]}
        if fresh:
            await self._send({"type": "series", "series": fresh})

    def _not_shown(self, name: str, change: dict[str, Any]) -> dict[str, Any]:
        until = self._shown_until.get((name, change["attempt"]))
        if until is None:
            return change
        points = [p for p in change["points"] if p[2] > until]
        if points:
            del self._shown_until[name, change["attempt"]]
        return {**change, "points": points}

    async def _send_run(self) -> None:
        loop = asyncio.get_running_loop()
        at, before = self._run_sent
        wait_s = at + RUN_EVERY_S - loop.time()
        if wait_s > 0:
            if self._later is None:
                self._later = loop.call_later(wait_s, self._run_is_due)
            return
        text = await run_in_threadpool(self._service.live_run, self._run_id)
        self._run_sent = (loop.time(), text)
        if text != before:
            now = self._service.clock()
            await self._websocket.send_text(f'{{"type":"run","now":{now:.3f},"run":{text}}}')

    def _run_is_due(self) -> None:
        self._later = None
        self._viewer.wake()

    async def _send(self, message: Any) -> None:
        await self._websocket.send_text(json_text(message))


class _FollowedLog:
    """One log from its last lines on."""

    def __init__(
        self, service: Service, run_id: str, rank: int | str, stream: Stream, wanted: int | None
    ) -> None:
        self._service, self._run_id = service, run_id
        self._rank, self._stream, self._wanted = rank, stream, wanted
        self._file_id: int | None = None
        self._attempt: int | None = None
        self._offset = 0
        self._text = TextPieces()
        self._is_new = True

    async def news(self) -> list[dict[str, Any]]:
        """What has been written since the last call."""
        return await run_in_threadpool(self._read)

    def _read(self) -> list[dict[str, Any]]:
        service = self._service
        attempt = self._wanted or service.latest_attempt(self._run_id)
        found = find_log(service.store, self._run_id, attempt, str(self._rank), self._stream)
        size = found.size_bytes if found else 0
        file_id = found.file_id if found else None
        is_other = self._is_new or attempt != self._attempt or self._file_id not in (None, file_id)
        self._attempt, self._file_id = attempt, file_id
        if is_other or size - self._offset > LOG_MOST_BEHIND_BYTES:
            return [self._message(self._jump(size), reset=True)]
        pieces = []
        while self._offset < size and (piece := self._take(min(LOG_PIECE_BYTES, size - self._offset))):
            pieces.append(self._message(piece))
        return pieces

    def _jump(self, size: int) -> bytes:
        self._is_new = False
        self._offset = max(0, size - LOG_TAIL_BYTES)
        self._text = TextPieces(starts_inside=self._offset > 0)
        return self._take(size - self._offset)

    def _take(self, length: int) -> bytes:
        if self._file_id is None or length <= 0:
            return b""
        piece = self._service.files.read(self._file_id, self._offset, length)
        self._offset += len(piece)
        return piece

    def _message(self, piece: bytes, reset: bool = False) -> dict[str, Any]:
        return {
            "type": "log",
            "rank": self._rank,
            "stream": self._stream,
            "attempt": self._attempt,
            "offset": self._offset - len(piece),
            "text": self._text.decode(piece),
            "reset": reset,
        }


def _tag(name: str, source: str) -> str:
    return name.removeprefix(f"{source}/") if source != "events" else name

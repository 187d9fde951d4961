"""The live channel: one WebSocket per page carries the run, its curves and one of its logs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
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
from dashboard.logs.sources import FollowedLogs, is_merged
from dashboard.logs.stored_logs import ALL, SomeStream, Stream, TextPieces, check_rank, find_log
from dashboard.security.identity.fresh_answers import FRESH_FOR_S
from dashboard.service.service import Service
from db import acting
from db.engine import StoreGone
from db.exceptions import NoSuchRun
from db.metrics import curves
from db.metrics.curves import to_json_points
from db.people.visibility import visibility
from domain.people.rights import OWNER
from domain.people.roles import Action
from domain.views import SeriesView

router = APIRouter(prefix="/api")
SNAPSHOT_POINTS = 2000
LOG_TAIL_BYTES = 64 * 1024
LOG_PIECE_BYTES = 256 * 1024
LOG_MOST_BEHIND_BYTES = 4 * 1024 * 1024
"""A page that falls further behind a growing log restarts from the log's last lines."""
LOG_KINDS = {"log", "run", "subscription"}
"""Messages after which a followed log may have grown, or belong to a new attempt."""
WITHOUT_LOG = frozenset({"log"})
"""A page without a log does not subscribe to these: files grow several times a second."""
RUN_EVERY_S = 1.0
UNKNOWN_RUN, NO_ROLE, RESTARTING = 4404, 4403, 1012


class LogChoice(BaseModel):
    """The log that a page shows."""

    rank: int | str
    stream: SomeStream
    """With rank `all` or both streams, lines of several logs are merged by their time of arrival."""
    attempt: int | None = None


class Subscription(BaseModel):
    """A page's request; it may be repeated at any time, with type `want` to change only the series."""

    type: str
    since: dict[str, float] | None = None
    logs: LogChoice | None = None
    series: list[str] | None = None
    """Names of the series to send points of; by default all of them, without a list of names first."""


@router.websocket("/live")
async def live(websocket: WebSocket, service: TheService, run: str = "") -> None:
    """Everything about one run as it happens."""
    await websocket.accept()
    try:
        await run_in_threadpool(service.references.check_run, Action.SEE, run)
        with service.hub.viewer(run) as viewer:
            if service.peers is not None:
                await run_in_threadpool(service.peers.follow, run)
            await _Session(service, websocket, run, viewer).serve()
    except NoSuchRun as error:
        with suppress(WebSocketDisconnect, RuntimeError):
            await websocket.close(NO_ROLE if isinstance(error, _RoleLost) else UNKNOWN_RUN)
    except (DBAPIError, StoreGone):  # the store is unavailable; the page reconnects and resumes where it was
        with suppress(WebSocketDisconnect, RuntimeError):
            await websocket.close(RESTARTING)
    except (WebSocketDisconnect, RuntimeError):  # the page is gone, perhaps in the middle of a send
        return


class _RoleLost(NoSuchRun):
    """The run is now hidden from one of its viewers."""


class _Session:
    def __init__(self, service: Service, websocket: WebSocket, run_id: str, viewer: Viewer) -> None:
        self._service, self._websocket = service, websocket
        self._run_id, self._viewer = run_id, viewer
        self._has_snapshot = False
        self._selected: set[str] | None = None
        self._announced: set[str] = set()
        self._shown_until: dict[tuple[str, int], float] = {}
        self._log: _FollowedLog | FollowedLogs | None = None
        self._run_sent: tuple[float, str] = (float("-inf"), "")
        self._run_timer: asyncio.TimerHandle | None = None
        self._changes, self._checked_at = service.identities.changes, service.clock.time.now()
        viewer.ignored = WITHOUT_LOG

    async def serve(self) -> None:
        """Forward messages until the page or the server disconnects."""
        await self._send_run()
        listening = asyncio.create_task(self._listen())
        try:
            while not self._service.hub.closing and not listening.done():
                await self._forward(await self._viewer.take())
            if not listening.done():
                await self._websocket.close(RESTARTING)
        finally:
            if self._run_timer is not None:
                self._run_timer.cancel()
            listening.cancel()
            with suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError):
                await listening

    async def _listen(self) -> None:
        """Queue the page's requests with all other messages, so that answers keep their order."""
        try:
            async for text in self._websocket.iter_text():
                with suppress(ValidationError, ValueError):
                    subscription = Subscription.model_validate(json.loads(text))
                    self._viewer.put({"type": "subscription", "subscription": subscription})
        finally:
            self._viewer.wake()

    async def _check_rights(self) -> None:
        """Check the visitor's current rights. Raises _RoleLost if the run is hidden now."""
        rights, identities, now = acting.rights(), self._service.identities, self._service.clock.time.now()
        is_checked = self._changes == identities.changes and now - self._checked_at < FRESH_FOR_S
        if rights.by in (None, OWNER) or is_checked:
            return
        self._changes, self._checked_at = identities.changes, now
        fresh = await run_in_threadpool(identities.fresh, rights)
        if visibility(fresh) != visibility(rights):
            acting.enter(fresh, acting.address())
            try:
                await run_in_threadpool(self._service.references.check_run, Action.SEE, self._run_id)
            except NoSuchRun as error:
                raise _RoleLost(str(error)) from None

    async def _forward(self, messages: list[Message]) -> None:
        if not any(message["type"] == "deleted" for message in messages):
            await self._check_rights()
        if self._viewer.needs_resync():
            self._has_snapshot = False
            self._selected = None
            await self._send({"type": "resync"})
        kinds = {message["type"] for message in messages}
        for message in messages:
            if message["type"] == "series":
                await self._send_delta(message)
            elif message["type"] == "subscription":
                await self._apply(message["subscription"])
        for kind in ("checkpoints", "history", "deleted"):
            if kind in kinds:
                await self._send({"type": kind})
        if "deleted" not in kinds:
            await self._send_run()
        if self._log is not None and kinds & LOG_KINDS:
            for log_message in await self._log.new_messages():
                await self._send(log_message)

    async def _apply(self, subscription: Subscription) -> None:
        await self._show_series(subscription)
        if subscription.type == "want":
            return
        self._log = None
        if subscription.logs is not None:
            run, rank, stream = self._service.run, subscription.logs.rank, subscription.logs.stream
            try:
                if rank != ALL:
                    check_rank(await run_in_threadpool(run, self._run_id), str(rank))
            except Rejection:
                return
            if stream == "both" or is_merged(str(rank), stream):
                logs = (str(rank), stream, subscription.logs.attempt)
                self._log = FollowedLogs(self._service, self._run_id, *logs)
            else:
                self._log = _FollowedLog(self._service, self._run_id, rank, stream, subscription.logs.attempt)
        self._viewer.ignored = WITHOUT_LOG if self._log is None else frozenset()

    async def _show_series(self, subscription: Subscription) -> None:
        """Send the series that the page does not have yet; where it selects some, all names first."""
        shown = self._selected or set()
        self._selected = None if subscription.series is None else set(subscription.series)
        if self._selected is None:
            if not self._has_snapshot:
                await self._send_snapshot(subscription.since or {}, None)
        else:
            if not self._has_snapshot:
                store, run_id = self._service.store, self._run_id
                await self._send_names(await run_in_threadpool(curves.series_sources, store, run_id))
            if self._selected - shown:
                await self._send_snapshot(subscription.since or {}, self._selected - shown)
        self._has_snapshot = True

    async def _send_names(self, sources: dict[str, str]) -> None:
        self._announced |= set(sources)
        await self._send({"type": "names", "series": sources})

    async def _send_snapshot(self, since: dict[str, float], names: set[str] | None) -> None:
        views = await run_in_threadpool(
            curves.series,
            self._service.store,
            self._run_id,
            names,
            "all",
            max_points=SNAPSHOT_POINTS,
            whole=True,  # pages show what was replaced when they are asked to
        )
        for text in await run_in_threadpool(self._snapshot_messages, views, since):
            await self._websocket.send_text(text)

    def _snapshot_messages(self, views: dict[str, SeriesView], since: dict[str, float]) -> list[str]:
        """One message per attempt and life of its script: its points, or only those after `since` where none are left
        out."""
        by_life: dict[tuple[int, int], dict[str, Any]] = {}
        for name, view in views.items():
            is_exact = len(view.points) == view.count
            lives = Counter(segment.attempt for segment in view.segments)
            begun = Counter[int]()
            for segment in view.segments:
                if segment.points:
                    self._shown_until[name, segment.attempt] = segment.points[-1][2]
                since_time = since.get(f"{segment.attempt}:{view.source}:{_tag(name, view.source)}")
                if not is_exact or lives[segment.attempt] > 1:
                    since_time = None
                points = [p for p in segment.points if since_time is None or p[2] > since_time]
                life = begun[segment.attempt]
                begun[segment.attempt] += 1
                by_life.setdefault((segment.attempt, life), {})[name] = {
                    "source": view.source,
                    "attempt": segment.attempt,
                    "points": to_json_points(points),
                    "reset": since_time is None and life == 0,
                    "begins_life": life > 0,
                    "not_finite_since": view.not_finite_since if segment is view.segments[-1] else None,
                } | ({"logged": segment.count, "repeats": segment.repeats} if since_time is None else {})
        return [json_text({"type": "series", "series": series}) for _, series in sorted(by_life.items())]

    async def _send_delta(self, message: Message) -> None:
        if not self._has_snapshot:
            return
        changes = message["series"]
        if self._selected is not None:
            if new := {name: change["source"] for name, change in changes.items() if name not in self._announced}:
                await self._send_names(new)
            changes = {name: change for name, change in changes.items() if name in self._selected}
        overlaps = any((name, change["attempt"]) in self._shown_until for name, change in changes.items())
        if not overlaps and len(changes) == len(message["series"]):
            await self._websocket.send_text(message["text"])
            return
        # Points of the first snapshot may also have been queued here.
        unsent = {name: self._not_shown(name, change) for name, change in changes.items()}
        unsent = {name: change for name, change in unsent.items() if change["points"]}
        if unsent:
            await self._send({"type": "series", "series": unsent})

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
        sent_at, sent_text = self._run_sent
        wait_s = sent_at + RUN_EVERY_S - loop.time()
        if wait_s > 0:
            if self._run_timer is None:
                self._run_timer = loop.call_later(wait_s, self._run_is_due)
            return
        text = self._service.kept_live_run(self._run_id)
        if text is None:
            text = await run_in_threadpool(self._service.live_run, self._run_id)
        self._run_sent = (loop.time(), text)
        if text != sent_text:
            now = self._service.clock()
            await self._websocket.send_text(f'{{"type":"run","now":{now:.3f},"run":{text}}}')

    def _run_is_due(self) -> None:
        self._run_timer = None
        self._viewer.wake()

    async def _send(self, message: Any) -> None:
        await self._websocket.send_text(json_text(message))


class _FollowedLog:
    """One log, from its last lines on."""

    def __init__(
        self, service: Service, run_id: str, rank: int | str, stream: Stream, requested_attempt: int | None
    ) -> None:
        self._service, self._run_id = service, run_id
        self._rank, self._stream, self._requested_attempt = rank, stream, requested_attempt
        self._file_id: int | None = None
        self._attempt: int | None = None
        self._offset = 0
        self._text = TextPieces()
        self._is_new = True

    async def new_messages(self) -> list[dict[str, Any]]:
        """Messages with the text written since the last call."""
        return await run_in_threadpool(self._read)

    def _read(self) -> list[dict[str, Any]]:
        service = self._service
        attempt = self._requested_attempt or service.latest_attempt(self._run_id)
        log = find_log(service.store, self._run_id, attempt, str(self._rank), self._stream)
        size = log.size_bytes if log else 0
        file_id = log.file_id if log else None
        must_restart = self._is_new or attempt != self._attempt or self._file_id not in (None, file_id)
        self._attempt, self._file_id = attempt, file_id
        if must_restart or size - self._offset > LOG_MOST_BEHIND_BYTES:
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

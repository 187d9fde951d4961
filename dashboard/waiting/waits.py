"""Wait for a run: until it ends, a finding comes, or a figure reaches a value; answer only what is new."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from typing import Any

from starlette.concurrency import run_in_threadpool

from dashboard.errors import Rejection
from dashboard.json_responses import document
from dashboard.live.hub import Viewer
from dashboard.service.service import Service
from db import acting
from db.findings import findings as db_findings
from db.metrics.latest_values import LatestValues, Seen, latest_values, main_values
from db.nodes.join_tokens import TurnedAway
from domain.messages import State
from domain.people.rights import OWNER
from domain.views import FindingView, RunView
from domain.waiting import (
    ENDED,
    FINDING,
    STEP,
    Cursor,
    NoCondition,
    Sight,
    Until,
    has_ended,
    parse_cursor,
    parse_until,
)


async def wait(
    service: Service, access_token: str | None, run_id: str, until: str, timeout_s: float, since: str = ""
) -> dict[str, Any]:
    """Wait for the actor, and return what is new since the cursor `since`, as JSON values.

    `access_token` is the name of the token that asks (`Principal.access_token`), with which the wait ends.

    Raises Rejection, NoSuchRun."""
    try:
        awaited = parse_until(until)
        cursor = parse_cursor(since) if since else None
    except NoCondition as error:
        raise Rejection(400, str(error), "since" if str(error).startswith("since") else "until") from None
    sockets = service.access_tokens.sockets
    with sockets.ending(access_token) if access_token else nullcontext(asyncio.Event()) as ended:
        answer = await _Wait(service, run_id, awaited, cursor, ended).answer(timeout_s)
    if answer is None:
        raise Rejection(401, await run_in_threadpool(_why_ended, service, access_token or ""))
    return answer


PAUSE_S = 0.5
"""Between two looks at a run whose points come many times a second."""
LOOK_EVERY_S = 5.0
"""After which a run is looked at without news: that a node is silent is none."""
QUIET = frozenset({"history", "checkpoints", "log"})
"""News that change nothing of what is waited for."""


class _Wait:
    """One request that waits."""

    def __init__(
        self, service: Service, run_id: str, until: Until, cursor: Cursor | None, ended: asyncio.Event
    ) -> None:
        self._service, self._run_id, self._until = service, run_id, until
        self._cursor, self._ended = cursor, ended
        self._seen = Seen(cursor.attempt, cursor.series) if cursor else None

    async def answer(self, timeout_s: float) -> dict[str, Any] | None:
        """Look at the run until something has come, the time is over, or the server ends; None: the token has ended."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_s
        with self._service.hub.viewer(self._run_id) as viewer:
            viewer.ignored = QUIET if self._until.compares else QUIET | {"series"}
            if self._service.peers is not None:
                await run_in_threadpool(self._service.peers.follow, self._run_id)
            while not self._ended.is_set():
                is_last = loop.time() >= ends_at or self._service.hub.closing
                answer = await run_in_threadpool(self._look, is_last)
                if answer is not None:
                    return answer
                await self._pause(min(PAUSE_S, ends_at - loop.time()))
                await _news(viewer, self._ended, min(LOOK_EVERY_S, ends_at - loop.time()))
        return None

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), max(0.0, seconds))

    def _look(self, is_last: bool) -> dict[str, Any] | None:
        """Return the answer where it is time for one. Raises NoSuchRun where the run is deleted or hidden by now."""
        rights = acting.rights()
        is_person = rights.by not in (None, OWNER)
        with acting.acting(self._service.identities.fresh(rights) if is_person else rights):
            run = self._service.run(self._run_id)
            findings = self._findings(run)
            values = latest_values(self._service.store, self._run_id, self._until.series, self._seen)
            sight = self._sight(run, values, findings)
            steps = {name: one.step for name, one in values.items() if one.attempt == run.attempt}
            self._seen = Seen(run.attempt, steps)
            is_met = self._until.is_met(sight)
            reached = _reached(self._until, is_met, sight) or ("timeout" if is_last else None)
            return self._answer(run, findings, values, reached, is_met) if reached else None

    def _findings(self, run: RunView) -> list[FindingView]:
        """The open findings of the latest attempt and of those that began since the cursor, one of each kind."""
        first = self._cursor.attempt if self._cursor else run.attempt
        by_kind: dict[tuple[int, str], FindingView] = {}
        for finding in db_findings.findings(self._service.store, self._run_id):
            if finding.attempt >= first and finding.gone_at is None:
                by_kind.setdefault((finding.attempt, finding.kind), finding)
        return list(by_kind.values())

    def _new(self, findings: Sequence[FindingView]) -> list[FindingView]:
        if (seen := self._cursor) is None:
            return list(findings)
        return [one for one in findings if one.attempt > seen.attempt or one.kind not in seen.findings]

    def _sight(self, run: RunView, values: dict[str, LatestValues], findings: Sequence[FindingView]) -> Sight:
        figures = {name: (one.last, *one.extremes) for name, one in values.items()}
        if run.step is not None:
            figures[STEP] = (float(run.step),)
        is_over = has_ended(run.state, asdict(run.delivery) if run.delivery else None)
        has_begun = run.started_at is not None and run.state not in (State.QUEUED, State.STARTING)
        return Sight(is_over, has_begun, bool(self._new(findings)), figures)

    def _answer(
        self,
        run: RunView,
        findings: Sequence[FindingView],
        values: dict[str, LatestValues],
        reached: str,
        is_met: bool,
    ) -> dict[str, Any]:
        kinds = [one.kind for one in findings if one.attempt == run.attempt]
        cursor = Cursor(run.state, run.attempt, run.step, kinds, self._seen.steps if self._seen else {})
        news: dict[str, Any] = {"id": run.id, "reached": reached, "is_met": is_met, "cursor": cursor.as_text()}
        before = self._cursor or Cursor("", 0, None)
        if (before.state, before.attempt) != (run.state, run.attempt):
            told = ("state", "attempt", "reason", "message", "next_step", "waiting_for")
            news |= {name: value for name in told if (value := getattr(run, name)) is not None}
        if (before.attempt, before.step) != (run.attempt, run.step) or (is_met and values):
            last = {name: one.last for name, one in values.items()}
            news |= {"step": run.step, "values": main_values(self._service.store, run.id) | last}
        if new := self._new(findings):
            news["findings"] = new
        return dict(document(news))


def _reached(until: Until, is_met: bool, sight: Sight) -> str | None:
    """Which of what ends a wait has come; None: nothing yet."""
    if is_met and until.text.lower() not in (ENDED, FINDING):
        return "condition"
    if sight.has_ended:
        return "ended"
    return "finding" if sight.has_new_finding else None


async def _news(viewer: Viewer, ended: asyncio.Event, longest_s: float) -> None:
    """Return when the run has changed, the token has ended, or after the time."""
    waiting = [asyncio.ensure_future(viewer.take()), asyncio.ensure_future(ended.wait())]
    try:
        await asyncio.wait(waiting, timeout=max(0.0, longest_s), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def _why_ended(service: Service, access_token: str) -> str:
    """The sentence for a token that has ended while its request waited."""
    holder = service.access_tokens.with_hash(access_token)
    return holder.message if isinstance(holder, TurnedAway) else "The token has ended."

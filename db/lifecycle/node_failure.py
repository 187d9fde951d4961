"""Attempts whose nodes are lost: when the rest of them is ended, and when a silent node's part is written off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.lifecycle.attempt_state import combine
from db.models import Attempt, File, FindingRow, Node, Run, Series, Task
from db.records.history import add_history
from domain.liveness import SILENT_AFTER_S
from domain.messages import LIVE_STATES, TERMINAL_STATES, Reason, State
from domain.preflight.version_match import names

STILL_AT_LEAST_S = 10.0
"""Points that nobody looks at come every five seconds."""
STEPS_MISSED = 3
"""So many mean steps without one mean that nobody steps, where that is longer."""

RESUME_IT = "Resume it from its latest checkpoint; with max_restarts a run goes on by itself."
_SPAN_S = Series.last_wall - Series.first_wall

Verdict = Literal["wait", "end", "write off"]


@dataclass(frozen=True)
class Share:
    """One node's part of an attempt."""

    node_rank: int
    node: str
    silent_s: float
    has_ended: bool
    has_failed: bool = False
    """Or was stopped."""


@dataclass(frozen=True)
class SilentAttempt:
    """All that decides what becomes of an attempt with silent nodes."""

    shares: Sequence[Share]
    is_ending: bool
    """Somebody asked for it, or a part of it has failed."""
    has_started: bool
    still_s: float
    """For how long no rank that can be heard has made a step."""
    step_s: float = 0.0
    """What a step takes in the mean."""
    is_hung: bool = False
    """A worker that can be heard says that its ranks hang."""
    ends_at_once: bool = False
    """The run's policy: not even a rest that steps is waited for."""

    def lost(self, lost_after_s: float) -> list[Share]:
        """Parts that nobody can ask any more."""
        return [share for share in self.shares if not share.has_ended and share.silent_s >= lost_after_s]


def verdict(now: SilentAttempt, lost_after_s: float, silent_after_s: float) -> Verdict:
    """Pure. A silent node alone never ends what still trains, or may do so unheard."""
    gone = now.lost(lost_after_s)
    rest = [share for share in now.shares if share not in gone]
    living = [share for share in rest if not share.has_ended]
    if not gone:
        return "wait"
    if not now.has_started:
        return "write off"
    if now.is_ending:
        return "wait" if living else "write off"
    if now.ends_at_once:
        return "end"
    if not rest or any(share.silent_s >= silent_after_s for share in living):
        return "wait"
    patience_s = max(lost_after_s, STILL_AT_LEAST_S, STEPS_MISSED * now.step_s)
    return "end" if now.is_hung or now.still_s >= patience_s else "wait"


class LostNodes:
    """Looks after attempts with silent nodes; remembers since when what can be heard of them stands still."""

    def __init__(self) -> None:
        self._still: dict[int, tuple[object, float]] = {}

    def judge(self, store: Store, now: float, lost_after_s: float) -> list[str]:
        """To be called every second or so. Returns the ids of the runs that changed."""
        silent_after_s = min(SILENT_AFTER_S, lost_after_s)
        with store.read() as session:
            attempts = _with_silent_nodes(session, now - silent_after_s)
            fences = [attempt.fence for attempt, _ in attempts]
            shares = _shares(session, fences, now) if fences else {}
            seen = {
                attempt.fence: self._look(session, attempt, shares[attempt.fence], now, silent_after_s)
                for attempt, _ in attempts
            }
        self._still = {fence: self._still[fence] for fence in seen}
        changed = []
        for attempt, ends_at_once in attempts:
            found = replace(seen[attempt.fence], ends_at_once=ends_at_once)
            decided = verdict(found, lost_after_s, silent_after_s)
            if decided != "wait" and _carry_out(store, attempt.fence, decided, found, now, lost_after_s):
                changed.append(attempt.run_id)
        return changed

    def _look(
        self, session: Session, attempt: Attempt, shares: Sequence[Share], now: float, silent_after_s: float
    ) -> SilentAttempt:
        heard = [share.node_rank for share in shares if share.silent_s < silent_after_s]
        moved, step_s = _movement(session, attempt.fence, heard) if heard else (None, 0.0)
        before, since = self._still.get(attempt.fence, (None, now))
        self._still[attempt.fence] = (moved, since if moved == before else now)
        return SilentAttempt(
            shares=shares,
            is_ending=attempt.end_wished_at is not None or any(share.has_failed for share in shares),
            has_started=len(shares) == 1 or attempt.preflighted_at is not None,
            still_s=now - self._still[attempt.fence][1],
            step_s=step_s,
            is_hung=bool(heard) and _is_hung(session, attempt.fence, heard),
        )


def _with_silent_nodes(session: Session, silent_since: float) -> list[tuple[Attempt, bool]]:
    """Live attempts of which a live part is on a node not heard of since then, and whether their run is to be
    ended with a lost node at once."""
    silent = (
        select(Task.fence)
        .join(Node, Node.id == Task.node_id)
        .where(Task.state.in_(LIVE_STATES), Node.last_seen <= silent_since)
    )
    live = (
        select(Attempt, Run.spec["on_lost_node"].as_string())
        .join(Run, Run.id == Attempt.run_id)
        .where(Attempt.state.in_(LIVE_STATES), Attempt.fence.in_(silent))
        .order_by(Attempt.fence)
    )
    return [(attempt, on_lost_node == "end") for attempt, on_lost_node in session.execute(live)]


def _shares(session: Session, fences: Sequence[int], now: float) -> dict[int, list[Share]]:
    query = (
        select(Task.fence, Task.node_rank, Task.state, Node.name, Node.last_seen)
        .join(Node, Node.id == Task.node_id)
        .where(Task.fence.in_(fences))
        .order_by(Task.fence, Task.node_rank)
    )
    found: dict[int, list[Share]] = {}
    for fence, node_rank, state, name, last_seen in session.execute(query):
        has_failed = state in (State.FAILED, State.STOPPED)
        share = Share(node_rank, name, now - last_seen, state in TERMINAL_STATES, has_failed)
        found.setdefault(fence, []).append(share)
    return found


def _movement(session: Session, fence: int, node_ranks: Sequence[int]) -> tuple[object, float]:
    """(what is different after every step of these nodes' ranks, a mean step in seconds).

    Without the probe's word: what is different after every point or line they write."""
    of_nodes = (Series.fence == fence, Series.node_rank.in_(node_ranks))
    steps = session.execute(
        select(Series.last_step, Series.finite_sum, Series.finite_count)
        .where(*of_nodes, Series.source == "probe", Series.tag.endswith("/step_time_s"))
        .order_by(Series.id)
    ).all()
    if steps:
        means = [total / count for _, total, count in steps if count]
        return tuple(step for step, *_ in steps), max(means, default=0.0)
    points, step_s = session.execute(
        select(func.sum(Series.count), func.min(_SPAN_S / func.nullif(Series.count - 1, 0))).where(*of_nodes)
    ).one()
    written = select(func.sum(File.size_bytes)).where(File.fence == fence, File.node_rank.in_(node_ranks))
    return (points, session.scalar(written)), step_s or 0.0


def _is_hung(session: Session, fence: int, node_ranks: Sequence[int]) -> bool:
    query = select(FindingRow.id).where(
        FindingRow.fence == fence, FindingRow.node_rank.in_(node_ranks), FindingRow.kind == "hung",
        FindingRow.gone_at.is_(None),
    )  # fmt: skip
    return session.scalars(query).first() is not None


def _carry_out(
    store: Store, fence: int, decided: Verdict, seen: SilentAttempt, now: float, lost_after_s: float
) -> bool:
    """False when it is no longer as it was seen."""
    with store.write() as session:
        attempt = session.get(Attempt, fence)
        is_over = attempt is None or attempt.state in TERMINAL_STATES
        if attempt is None or is_over or _shares(session, [fence], now).get(fence) != seen.shares:
            return False
        gone = seen.lost(lost_after_s)
        if decided == "end":
            _request_end(session, attempt, seen, gone, now)
        else:
            for share in gone:
                _write_off(session.get_one(Task, (fence, share.node_rank)), attempt, share, seen, now)
            session.flush()
            combine(session, attempt, now)
        return True


def _request_end(
    session: Session, attempt: Attempt, seen: SilentAttempt, gone: Sequence[Share], now: float
) -> None:
    who = _lost_words(gone)
    rest = [share.node for share in seen.shares if share not in gone and not share.has_ended]
    why = "the run is to be ended then" if seen.ends_at_once else _still_words(seen, rest)
    attempt.end_requested_at, attempt.end_reason = now, Reason.NODE_LOST
    attempt.end_message = f"{who[0].upper()}{who[1:]}, and {why}."
    add_history(session, attempt.run_id, attempt.number, now, f"it is ended: {who}, and {why}")


def _still_words(seen: SilentAttempt, rest: Sequence[str]) -> str:
    if not rest:
        return "all the others have ended"
    if seen.is_hung:
        return f"the ranks on {names(rest)} hang"
    return f"the ranks on {names(rest)} have made no step for {seen.still_s:.0f} s"


def _lost_words(gone: Sequence[Share]) -> str:
    subject = "the node" if len(gone) == 1 else "the nodes"
    verb, silent_s = "was" if len(gone) == 1 else "were", max(share.silent_s for share in gone)
    return f"{subject} {names([share.node for share in gone])} {verb} lost (no word for {silent_s:.0f} s)"


def _write_off(part: Task, attempt: Attempt, share: Share, seen: SilentAttempt, now: float) -> None:
    """What is left of it there is ended when the node is back; until then its devices are not given out."""
    is_stop = attempt.stop_requested_at is not None
    part.state, part.reported_at = State.STOPPED if is_stop else State.FAILED, now
    part.reason = None if is_stop else Reason.NODE_LOST
    part.lost_at = now
    part.next_step = None if is_stop else RESUME_IT
    part.message = _write_off_words(share, seen, is_stop)


def _write_off_words(share: Share, seen: SilentAttempt, is_stop: bool) -> str:
    silent = f"no word from it for {share.silent_s:.0f} s"
    if is_stop:
        return (
            f"Stopped; {share.node} could not be asked: {silent}. "
            "What still runs there is ended as soon as it is back."
        )
    if not seen.has_started:
        return f"The node {share.node} was lost before the run started on it: {silent}."
    return f"The node {share.node} was lost: {silent}. What still runs there is ended as soon as it is back."

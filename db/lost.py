"""Attempts whose nodes are lost: when the rest of them is ended, and when a silent node's part is written off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db import starting
from db.agreement import names
from db.contact import SILENT_AFTER_S
from db.engine import Store
from db.models import Attempt, File, FindingRow, Node, Part, Run, Series
from db.outcome import combine
from db.requests import note
from db.spec import RunSpec
from db.states import LIVE_STATES, TERMINAL_STATES, Reason, State

STILL_AT_LEAST_S = 10.0
"""Points that nobody looks at come every five seconds."""
STEPS_MISSED = 3
"""So many mean steps without one mean that nobody steps, where that is longer."""

Verdict = Literal["wait", "end", "write off"]


@dataclass(frozen=True)
class Share:
    """One node's part of an attempt."""

    node_rank: int
    node: str
    silent_s: float
    has_ended: bool


@dataclass(frozen=True)
class Situation:
    """All that decides what becomes of an attempt with silent nodes."""

    shares: Sequence[Share]
    ends_at_once: bool
    """The run's policy: not even a rest that steps is waited for."""
    is_ending: bool
    """Somebody asked for it, or a part of it has failed."""
    has_started: bool
    still_s: float
    """For how long no rank that can be heard has made a step."""
    patience_s: float
    is_hung: bool = False
    """A worker that can be heard says that its ranks hang."""

    def lost(self, lost_after_s: float) -> list[Share]:
        """Parts that nobody can ask any more."""
        return [share for share in self.shares if not share.has_ended and share.silent_s >= lost_after_s]


def verdict(now: Situation, lost_after_s: float, silent_after_s: float) -> Verdict:
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
    return "end" if now.is_hung or now.still_s >= now.patience_s else "wait"


class LostNodes:
    """Looks after attempts with silent nodes; remembers since when what can be heard of them stands still."""

    def __init__(self) -> None:
        self._still: dict[int, tuple[object, float]] = {}

    def judge(self, store: Store, now: float, lost_after_s: float) -> list[str]:
        """To be called every second or so. Returns the ids of the runs that changed."""
        silent_after_s = min(SILENT_AFTER_S, lost_after_s)
        with store.read() as session:
            attempts = _with_silent_nodes(session, now - silent_after_s)
            seen = {
                each.fence: self._look(session, each, now, lost_after_s, silent_after_s) for each in attempts
            }
        self._still = {fence: self._still[fence] for fence in seen}
        judged = {fence: verdict(found, lost_after_s, silent_after_s) for fence, found in seen.items()}
        changed = []
        for fence, found in judged.items():
            if found != "wait" and (
                run_id := _carry_out(store, fence, found, seen[fence], now, lost_after_s)
            ):
                changed.append(run_id)
        return changed

    def _look(
        self, session: Session, attempt: Attempt, now: float, lost_after_s: float, silent_after_s: float
    ) -> Situation:
        shares = _shares(session, attempt.fence, now)
        heard = [share.node_rank for share in shares if share.silent_s < silent_after_s]
        moved, step_s = _movement(session, attempt.fence, heard)
        before, since = self._still.get(attempt.fence, (None, now))
        self._still[attempt.fence] = (moved, since if moved == before else now)
        states = set(session.scalars(select(Part.state).where(Part.fence == attempt.fence)))
        return Situation(
            shares=shares,
            ends_at_once=_spec(session, attempt).on_lost_node == "end",
            is_ending=attempt.end_wished_at is not None or bool(states & {State.FAILED, State.STOPPED}),
            has_started=starting.may_start(session, attempt.fence),
            still_s=now - self._still[attempt.fence][1],
            patience_s=max(lost_after_s, STILL_AT_LEAST_S, STEPS_MISSED * step_s),
            is_hung=_is_hung(session, attempt.fence, heard),
        )


def _with_silent_nodes(session: Session, silent_since: float) -> Sequence[Attempt]:
    """Live attempts of which a live part is on a node not heard of since then."""
    silent = (
        select(Part.fence)
        .join(Node, Node.id == Part.node_id)
        .where(Part.state.in_(LIVE_STATES), Node.last_seen <= silent_since)
    )
    live = select(Attempt).where(Attempt.state.in_(LIVE_STATES), Attempt.fence.in_(silent))
    return session.scalars(live.order_by(Attempt.fence)).all()


def _shares(session: Session, fence: int, now: float) -> list[Share]:
    query = (
        select(Part.node_rank, Part.state, Node.name, Node.last_seen)
        .join(Node, Node.id == Part.node_id)
        .where(Part.fence == fence)
        .order_by(Part.node_rank)
    )
    return [
        Share(node_rank, name, now - last_seen, state in TERMINAL_STATES)
        for node_rank, state, name, last_seen in session.execute(query)
    ]


def _movement(session: Session, fence: int, node_ranks: Sequence[int]) -> tuple[object, float]:
    """(what is different after every step of these nodes' ranks, a mean step in seconds).

    Without the probe's word: what is different after every point or line they write."""
    of_nodes = select(Series).where(Series.fence == fence, Series.node_rank.in_(node_ranks))
    series = list(session.scalars(of_nodes.order_by(Series.id)))
    steps = [row for row in series if row.source == "probe" and row.tag.endswith("/step_time_s")]
    if steps:
        means = [row.finite_sum / row.finite_count for row in steps if row.finite_count]
        return tuple(row.last_step for row in steps), max(means, default=0.0)
    written = select(func.sum(File.size_bytes)).where(File.fence == fence, File.node_rank.in_(node_ranks))
    logged = [(row.last_wall - row.first_wall) / (row.count - 1) for row in series if row.count > 1]
    return (sum(row.count for row in series), session.scalar(written) or 0), min(logged, default=0.0)


def _is_hung(session: Session, fence: int, node_ranks: Sequence[int]) -> bool:
    query = select(FindingRow.id).where(
        FindingRow.fence == fence, FindingRow.node_rank.in_(node_ranks), FindingRow.kind == "hung",
        FindingRow.gone_at.is_(None),
    )  # fmt: skip
    return session.scalars(query).first() is not None


def _carry_out(
    store: Store, fence: int, decided: Verdict, seen: Situation, now: float, lost_after_s: float
) -> str | None:
    """The run's id, unless it is no longer as it was seen."""
    with store.write() as session:
        attempt = session.get(Attempt, fence)
        if attempt is None or attempt.state in TERMINAL_STATES or _shares(session, fence, now) != seen.shares:
            return None
        gone = seen.lost(lost_after_s)
        if decided == "end":
            _request_end(session, attempt, seen, gone, now)
        else:
            for share in gone:
                _write_off(session.get_one(Part, (fence, share.node_rank)), attempt, share, seen, now)
            session.flush()
            combine(session, attempt, now)
        return attempt.run_id


def _request_end(
    session: Session, attempt: Attempt, seen: Situation, gone: Sequence[Share], now: float
) -> None:
    who = _lost_words(gone)
    rest = [share.node for share in seen.shares if share not in gone and not share.has_ended]
    why = "the run is to be ended then" if seen.ends_at_once else _still_words(seen, rest)
    attempt.end_requested_at, attempt.end_reason = now, Reason.NODE_LOST
    attempt.end_message = f"{who[0].upper()}{who[1:]}, and {why}."
    note(session, attempt.run_id, attempt.number, now, f"it is ended: {who}, and {why}")


def _still_words(seen: Situation, rest: Sequence[str]) -> str:
    if not rest:
        return "all the others have ended"
    if seen.is_hung:
        return f"the ranks on {names(rest)} hang"
    return f"the ranks on {names(rest)} have made no step for {seen.still_s:.0f} s"


def _lost_words(gone: Sequence[Share]) -> str:
    subject = "the node" if len(gone) == 1 else "the nodes"
    verb, silent_s = "was" if len(gone) == 1 else "were", max(share.silent_s for share in gone)
    return f"{subject} {names([share.node for share in gone])} {verb} lost (no word for {silent_s:.0f} s)"


def _write_off(part: Part, attempt: Attempt, share: Share, seen: Situation, now: float) -> None:
    """What is left of it there is ended when the node is back; until then its devices are not given out."""
    is_stop = attempt.stop_requested_at is not None
    part.state, part.reported_at = State.STOPPED if is_stop else State.FAILED, now
    part.reason = None if is_stop else Reason.NODE_LOST
    part.lost_at = now
    part.message = _write_off_words(share, seen, is_stop)


def _write_off_words(share: Share, seen: Situation, is_stop: bool) -> str:
    silent = f"no word from it for {share.silent_s:.0f} s"
    if is_stop:
        return (
            f"Stopped; {share.node} could not be asked: {silent}. "
            "What still runs there is ended as soon as it is back."
        )
    if not seen.has_started:
        return f"The node {share.node} was lost before the run started on it: {silent}."
    return f"The node {share.node} was lost: {silent}. What still runs there is ended as soon as it is back."


def _spec(session: Session, attempt: Attempt) -> RunSpec:
    return RunSpec.model_validate(session.get_one(Run, attempt.run_id).spec)

"""Attempts with lost nodes: when their other tasks are ended, and when a lost node's task counts as ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from db.attempts.attempt_state import combine
from db.attempts.new_attempt import by_policy
from db.engine import Store
from db.health import incidents
from db.lookups import add_history
from db.models import Attempt, File, FindingRow, Node, Run, Series, Task, WatchedRun
from domain.liveness import SILENT_AFTER_S
from domain.messages import LIVE_STATES, TERMINAL_STATES, Reason, State
from domain.preflight import names
from domain.text.formats import agree

STILL_AT_LEAST_S = 10.0
"""Points that no page shows arrive only every five seconds."""
LOOK_AFTER_S = 5.0
"""Seconds of silence, a missed heartbeat, after which it is watched whether the attempt's ranks make steps: if they
stand still because a node was lost, this is known by the time that it counts as lost, or soon after."""
STEPS_MISSED = 3
"""Ranks count as standing still after this many mean step times without a step, where that is longer."""

RESUME_IT = "Resume it from its latest checkpoint; with max_restarts a run restarts automatically."
START_IT = "Start its command again, from its latest checkpoint."
_SPAN_S = Series.last_wall - Series.first_wall
_WITH_SILENT_NODES = (
    select(Attempt, Run.spec["on_lost_node"].as_string(), WatchedRun.run_id.is_not(None))
    .join(Run, Run.id == Attempt.run_id)
    .outerjoin(WatchedRun, WatchedRun.run_id == Run.id)
    .where(
        Attempt.state.in_(LIVE_STATES),
        Attempt.fence.in_(
            select(Task.fence)
            .join(Node, Node.id == Task.node_id)
            .where(Task.state.in_(LIVE_STATES), Node.last_seen <= bindparam("silent_since"))
        ),
    )
    .order_by(Attempt.fence)
)
"""Built once: it runs every second."""

Verdict = Literal["wait", "end", "write off"]


@dataclass(frozen=True)
class Share:
    """The state of one node's task, for the verdict."""

    node_rank: int
    node: str
    silent_s: float
    has_ended: bool
    has_failed: bool = False
    """Whether it failed or was stopped."""


@dataclass(frozen=True)
class SilentAttempt:
    """The facts that decide what happens to an attempt with silent nodes."""

    shares: Sequence[Share]
    is_ending: bool
    """Whether its end was requested, or one of its tasks has failed."""
    has_started: bool
    still_s: float
    """Seconds since a step of any rank has arrived."""
    step_s: float = 0.0
    """Mean step time in seconds."""
    is_hung: bool = False
    """Whether a connected worker reports that its ranks hang."""
    ends_at_once: bool = False
    """Whether the run's policy ends it at once, even if its other ranks still step."""
    is_watched: bool = False
    """Whether others started it: nothing here ends its other processes."""

    def lost(self, lost_after_s: float) -> list[Share]:
        """The tasks on lost nodes that have not ended."""
        return [share for share in self.shares if not share.has_ended and share.silent_s >= lost_after_s]


def verdict(attempt: SilentAttempt, lost_after_s: float, silent_after_s: float) -> Verdict:
    """Decide about an attempt with silent nodes. A silent node alone never ends a run that may still train. Pure."""
    lost = attempt.lost(lost_after_s)
    remaining = [share for share in attempt.shares if share not in lost]
    living = [share for share in remaining if not share.has_ended]
    if not lost:
        return "wait"
    if not attempt.has_started:
        return "write off"
    if attempt.is_ending:
        return "wait" if living else "write off"
    if attempt.is_watched and living:
        return "wait"
    if attempt.ends_at_once:
        return "end"
    if not remaining or any(share.silent_s >= silent_after_s for share in living):
        return "wait"
    patience_s = max(lost_after_s, STILL_AT_LEAST_S, STEPS_MISSED * attempt.step_s)
    return "end" if attempt.is_hung or attempt.still_s >= patience_s else "wait"


class LostNodes:
    """Judge attempts with silent nodes; remember since when no step of theirs has arrived."""

    def __init__(self) -> None:
        self._still: dict[int, tuple[object, float]] = {}

    def judge(self, store: Store, now: float, lost_after_s: float) -> list[str]:
        """Judge all attempts with silent nodes, every second or so; return the ids of the runs that changed."""
        silent_after_s = min(SILENT_AFTER_S, lost_after_s)
        with store.read() as session:
            attempts = _with_silent_nodes(session, now - min(LOOK_AFTER_S, silent_after_s))
            fences = [attempt.fence for attempt, *_ in attempts]
            shares = _shares(session, fences, now) if fences else {}
            observed = {
                attempt.fence: self._look(session, attempt, shares[attempt.fence], now, silent_after_s)
                for attempt, *_ in attempts
            }
        self._still = {fence: self._still[fence] for fence in observed}
        changed = []
        for attempt, ends_at_once, is_watched in attempts:
            silent_attempt = replace(observed[attempt.fence], ends_at_once=ends_at_once, is_watched=is_watched)
            decision = verdict(silent_attempt, lost_after_s, silent_after_s)
            if decision != "wait" and _carry_out(store, attempt.fence, decision, silent_attempt, now, lost_after_s):
                changed.append(attempt.run_id)
        return changed

    def _look(
        self, session: Session, attempt: Attempt, shares: Sequence[Share], now: float, silent_after_s: float
    ) -> SilentAttempt:
        alive_ranks = [share.node_rank for share in shares if share.silent_s < silent_after_s]
        progress, step_s = _movement(session, attempt.fence)
        before, since = self._still.get(attempt.fence, (None, now))
        self._still[attempt.fence] = (progress, since if progress == before else now)
        return SilentAttempt(
            shares=shares,
            is_ending=attempt.ending_since is not None or any(share.has_failed for share in shares),
            has_started=len(shares) == 1 or attempt.preflighted_at is not None,
            still_s=now - self._still[attempt.fence][1],
            step_s=step_s,
            is_hung=bool(alive_ranks) and _is_hung(session, attempt.fence, alive_ranks),
        )


def _with_silent_nodes(session: Session, silent_since: float) -> list[tuple[Attempt, bool, bool]]:
    """Live attempts with a live task on a node silent since `silent_since`, whether their run's policy ends them as
    soon as a node is lost, and whether others started them."""
    live = session.execute(_WITH_SILENT_NODES, {"silent_since": silent_since})
    return [(attempt, on_lost_node == "end", is_watched) for attempt, on_lost_node, is_watched in live]


def _shares(session: Session, fences: Sequence[int], now: float) -> dict[int, list[Share]]:
    query = (
        select(Task.fence, Task.node_rank, Task.state, Node.name, Node.last_seen)
        .join(Node, Node.id == Task.node_id)
        .where(Task.fence.in_(fences))
        .order_by(Task.fence, Task.node_rank)
    )
    shares: dict[int, list[Share]] = {}
    for fence, node_rank, state, name, last_seen in session.execute(query):
        has_failed = state in (State.FAILED, State.STOPPED)
        share = Share(node_rank, name, now - last_seen, state in TERMINAL_STATES, has_failed)
        shares.setdefault(fence, []).append(share)
    return shares


def _movement(session: Session, fence: int) -> tuple[object, float]:
    """(a value that changes with every step that arrives, the mean step time in seconds).

    Without the probe's series, a value that changes with every point or line. From a silent node nothing arrives."""
    steps = session.execute(
        select(Series.last_step, Series.finite_sum, Series.finite_count)
        .where(Series.fence == fence, Series.source == "probe", Series.tag.endswith("/step_time_s"))
        .order_by(Series.id)
    ).all()
    if steps:
        means = [total / count for _, total, count in steps if count]
        return tuple(step for step, *_ in steps), max(means, default=0.0)
    points, step_s = session.execute(
        select(func.sum(Series.count), func.min(_SPAN_S / func.nullif(Series.count - 1, 0))).where(
            Series.fence == fence
        )
    ).one()
    written = select(func.sum(File.size_bytes)).where(File.fence == fence)
    return (points, session.scalar(written)), step_s or 0.0


def _is_hung(session: Session, fence: int, node_ranks: Sequence[int]) -> bool:
    query = select(FindingRow.id).where(
        FindingRow.fence == fence, FindingRow.node_rank.in_(node_ranks), FindingRow.kind == "hung",
        FindingRow.gone_at.is_(None),
    )  # fmt: skip
    return session.scalars(query).first() is not None


def _carry_out(
    store: Store, fence: int, decision: Verdict, observed: SilentAttempt, now: float, lost_after_s: float
) -> bool:
    """Carry out the decision; False when the attempt has changed since it was observed."""
    with store.write() as session:
        attempt = session.get(Attempt, fence)
        is_over = attempt is None or attempt.state in TERMINAL_STATES
        if attempt is None or is_over or _shares(session, [fence], now).get(fence) != observed.shares:
            return False
        lost = observed.lost(lost_after_s)
        if decision == "end":
            _request_end(session, attempt, observed, lost, now)
            incidents.contact_lost(session, attempt, [share.node_rank for share in lost], now)
        else:
            if not observed.is_ending:
                incidents.contact_lost(session, attempt, [share.node_rank for share in lost], now)
            for share in lost:
                _write_off(session.get_one(Task, (fence, share.node_rank)), attempt, share, observed, now)
            session.flush()
            combine(session, attempt, now)
        return True


def write_off_lost(session: Session, attempt: Attempt, now: float, lost_after_s: float) -> None:
    """Mark the tasks of a watched attempt on lost nodes as ended: their command was started again elsewhere."""
    if attempt.state in TERMINAL_STATES:
        return
    shares = _shares(session, [attempt.fence], now)[attempt.fence]
    observed = SilentAttempt(shares, is_ending=False, has_started=True, still_s=0.0, is_watched=True)
    for share in observed.lost(lost_after_s):
        _write_off(session.get_one(Task, (attempt.fence, share.node_rank)), attempt, share, observed, now)
    session.flush()
    combine(session, attempt, now)


def _request_end(
    session: Session, attempt: Attempt, observed: SilentAttempt, lost: Sequence[Share], now: float
) -> None:
    lost_nodes = _lost_words(lost)
    remaining = [share.node for share in observed.shares if share not in lost and not share.has_ended]
    cause = "the run is set to end then" if observed.ends_at_once else _still_words(observed, remaining)
    attempt.end_requested_at, attempt.end_reason = now, Reason.NODE_LOST
    attempt.end_message = f"{lost_nodes[0].upper()}{lost_nodes[1:]}, and {cause}."
    with by_policy(session, attempt.run_id):
        add_history(session, attempt.run_id, attempt.number, now, f"it is ended: {lost_nodes}, and {cause}")


def _still_words(observed: SilentAttempt, remaining: Sequence[str]) -> str:
    if not remaining:
        return "all the others have ended"
    if observed.is_hung:
        return f"the ranks on {names(remaining)} hang"
    return f"the ranks on {names(remaining)} have made no step for {observed.still_s:.0f} s"


def _lost_words(lost: Sequence[Share]) -> str:
    subject, verb = agree(len(lost), "the node", "the nodes"), agree(len(lost), "was", "were")
    silent_s = max(share.silent_s for share in lost)
    return f"{subject} {names([share.node for share in lost])} {verb} lost (silent for {silent_s:.0f} s)"


def _write_off(task: Task, attempt: Attempt, share: Share, observed: SilentAttempt, now: float) -> None:
    """Mark a lost node's task as ended. Its processes are ended when the node is back; until then its devices stay
    allocated."""
    is_stop = attempt.stop_requested_at is not None
    task.state, task.reported_at = State.STOPPED if is_stop else State.FAILED, now
    task.reason = None if is_stop else Reason.NODE_LOST
    task.lost_at = now
    task.next_step = None if is_stop else START_IT if observed.is_watched else RESUME_IT
    task.message = _write_off_words(share, observed, is_stop)


def _write_off_words(share: Share, observed: SilentAttempt, is_stop: bool) -> str:
    silence = f"it has been silent for {share.silent_s:.0f} s"
    if is_stop:
        return (
            f"Stopped; {share.node} could not be asked: {silence}. "
            "Processes still running there end as soon as it is back."
        )
    if not observed.has_started:
        return f"The node {share.node} was lost before the run started on it: {silence}."
    if observed.is_watched:
        return f"{share.node} was lost: {silence}. What still runs there is taken up again when it is back."
    return f"The node {share.node} was lost: {silence}. Processes still running there end as soon as it is back."

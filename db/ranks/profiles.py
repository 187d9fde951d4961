"""Profiles of a run's ranks: their requests, what nodes report of them, and their traces."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session, undefer

from db.engine import Store
from db.exceptions import NoSuchProfile, WrongState
from db.lookups import attempt_scope, latest_attempt, task_of_node
from db.models import Attempt, File, Node, ProfiledRank, Series, Task
from db.people import audit
from db.people.permission import permitted_run
from db.people.visibility import visible_fences
from domain.assignments import MAX_RANKS, MAX_STEPS, ProfileRequest
from domain.messages import LIVE_STATES, State
from domain.people.audit import AuditAction
from domain.people.roles import Action
from domain.profiles.records import Overview, RankProfile
from domain.profiles.views import (
    ANSWER_S,
    ProfileCost,
    ProfileFile,
    ProfileState,
    ProfileView,
    RankOutcome,
    first_step_to_record,
    state_of_all,
)

BEGIN_S = 4.0
"""Seconds that a request may take to reach every rank."""
START_LIMIT_S = 60.0
_TAG = re.compile(r"rank(\d+)/step_time_s")


def request(store: Store, run_id: str, steps: int, ranks: Sequence[int], now: float) -> str:
    """Request a profile of the next steps of these ranks, by default of the first ones; return its id.

    Raises NoSuchRun, WrongState, Denied."""
    profile_id = secrets.token_hex(5)
    with store.write() as session:
        run = permitted_run(session, Action.ACT, run_id)
        attempt = latest_attempt(session, run_id)
        _check_request(session, attempt, steps, now)
        series = _series_by_rank(session, attempt.fence)
        chosen = sorted(set(ranks)) or sorted(series)[:MAX_RANKS]
        _check_ranks(attempt, chosen, series)
        positions = [(s.last_step, s.last_value, max(0.0, now - s.last_wall)) for s in series.values()]
        first_step = first_step_to_record(positions, BEGIN_S)
        step_s = max(s.last_value for s in series.values())
        until = now + START_LIMIT_S + 3 * (BEGIN_S + steps * step_s)
        for rank in chosen:
            row = ProfiledRank(profile_id=profile_id, rank=rank, fence=attempt.fence, steps=steps)
            row.node_rank, row.requested_at = series[rank].node_rank, now
            row.first_step, row.until = first_step, until
            session.add(row)
        audit.record_of_run(session, AuditAction.PROFILED, run, {"steps": steps, "ranks": chosen})
    return profile_id


def request_of(session: Session, task: Task) -> ProfileRequest | None:
    """Return the profile that a task's ranks have not all answered; the latest one."""
    rows = session.scalars(
        select(ProfiledRank)
        .where(ProfiledRank.fence == task.fence, ProfiledRank.node_rank == task.node_rank)
        .order_by(ProfiledRank.requested_at.desc(), ProfiledRank.rank)
    ).all()
    waiting = [row for row in rows if row.profile_id == rows[0].profile_id and row.state is None]
    if not waiting:
        return None
    row, ranks = waiting[0], [row.rank for row in waiting]
    return ProfileRequest(id=row.profile_id, first_step=row.first_step, steps=row.steps, ranks=ranks, until=row.until)


def profile_reported(store: Store, node_id: str, fence: int, node_rank: int, outcome: RankProfile) -> None:
    """Store the outcome of a profile in one rank. Raises NotOwner, Superseded."""
    with store.write(attempt_scope(fence)) as session:
        task_of_node(session, node_id, fence, node_rank)
        row = session.get(ProfiledRank, (outcome.profile, outcome.rank))
        if row is None or (row.fence, row.node_rank) != (fence, node_rank):
            return  # of a store that has been restored since
        row.state, row.why = outcome.state, outcome.why
        row.file, row.size_bytes = outcome.file, outcome.size_bytes
        row.step_s_before = outcome.step_s_before
        row.overview = outcome.overview.model_dump(mode="json") if outcome.overview else None
        row.flame = [list(frame) for frame in outcome.flame]


def profiles(store: Store, run_id: str, now: float) -> list[ProfileView]:
    """The profiles of a run, oldest first. Raises NoSuchRun."""
    with store.read() as session:
        latest_attempt(session, run_id)
        rows = session.execute(
            select(ProfiledRank, Attempt, Node.name, File)
            .join(Attempt, Attempt.fence == ProfiledRank.fence)
            .join(Task, (Task.fence == ProfiledRank.fence) & (Task.node_rank == ProfiledRank.node_rank))
            .join(Node, Node.id == Task.node_id)
            .outerjoin(
                File,
                (File.fence == ProfiledRank.fence)
                & (File.node_rank == ProfiledRank.node_rank)
                & (File.path == ProfiledRank.file),
            )
            .where(Attempt.run_id == run_id)
            .order_by(ProfiledRank.requested_at, ProfiledRank.profile_id, ProfiledRank.rank)
        ).all()
        by_id: dict[str, list[tuple[ProfiledRank, Attempt, RankOutcome]]] = {}
        for row, attempt, node, file in rows:
            outcome = _outcome(row, State(attempt.state), node, file, now)
            by_id.setdefault(row.profile_id, []).append((row, attempt, outcome))
        return [_view(run_id, ranks) for ranks in by_id.values()]


def profile(store: Store, run_id: str, profile_id: str, now: float) -> ProfileView:
    """One profile of a run. Raises NoSuchRun, NoSuchProfile."""
    for view in profiles(store, run_id, now):
        if view.id == profile_id:
            return view
    raise NoSuchProfile(f"Run {run_id} has no profile {profile_id!r}.")


def cost_elsewhere(store: Store, run_id: str) -> ProfileCost | None:
    """Return what the latest profile of another run cost that the actor may see; None where none was recorded."""
    query = (
        select(ProfiledRank, Attempt.run_id)
        .join(Attempt, Attempt.fence == ProfiledRank.fence)
        .where(
            Attempt.run_id != run_id,
            visible_fences(),
            ProfiledRank.state == ProfileState.RECORDED,
            ProfiledRank.step_s_before > 0,
        )
        .order_by(ProfiledRank.requested_at.desc())
        .limit(3)
    )
    with store.read() as session:
        for row, other in session.execute(query):
            if row.overview and row.step_s_before:
                step_s = row.overview["seconds"] / row.overview["steps"]
                return ProfileCost(step_s / row.step_s_before - 1, (row.size_bytes or 0) / row.steps, other)
    return None


def flame(store: Store, run_id: str, profile_id: str, rank: int) -> list[list[object]]:
    """The frames of one rank's flame graph. Raises NoSuchProfile."""
    with store.read() as session:
        return list(_row(session, run_id, profile_id, rank).flame or [])


def trace_file(store: Store, run_id: str, profile_id: str, rank: int) -> tuple[int, int]:
    """(id, bytes) of the file with one rank's trace. Raises NoSuchProfile."""
    with store.read() as session:
        row = _row(session, run_id, profile_id, rank)
        query = select(File).filter_by(fence=row.fence, node_rank=row.node_rank, path=row.file)
        file = session.scalars(query).first() if row.file else None
        if file is None or file.size_bytes != row.size_bytes:
            raise NoSuchProfile(f"Profile {profile_id} has no trace of rank {rank}.")
        return file.id, file.size_bytes


def _row(session: Session, run_id: str, profile_id: str, rank: int) -> ProfiledRank:
    query = select(ProfiledRank).join(Attempt, Attempt.fence == ProfiledRank.fence)
    is_wanted = (Attempt.run_id == run_id, ProfiledRank.profile_id == profile_id, ProfiledRank.rank == rank)
    row = session.scalars(query.where(*is_wanted).options(undefer(ProfiledRank.flame))).first()
    if row is None:
        raise NoSuchProfile(f"Run {run_id} has no profile {profile_id!r} of rank {rank}.")
    return row


def _check_request(session: Session, attempt: Attempt, steps: int, now: float) -> None:
    """Raises WrongState where nothing can be recorded now."""
    if attempt.state not in LIVE_STATES:
        raise WrongState(f"Run {attempt.run_id} is {attempt.state}; only ranks that train can be profiled.")
    if not 1 <= steps <= MAX_STEPS:
        raise WrongState(f"A profile records 1 to {MAX_STEPS} steps, not {steps}.")
    pending = select(ProfiledRank).where(
        ProfiledRank.fence == attempt.fence,
        ProfiledRank.state.is_(None),
        ProfiledRank.until + ANSWER_S > now,
    )
    if row := session.scalars(pending).first():
        last = row.first_step + row.steps - 1
        raise WrongState(f"Profile {row.profile_id} still records steps {row.first_step} to {last}: wait for it.")


def _check_ranks(attempt: Attempt, chosen: Sequence[int], series: dict[int, Series]) -> None:
    """Raises WrongState where a chosen rank cannot be profiled."""
    if len(chosen) > MAX_RANKS:
        raise WrongState(f"A profile records at most {MAX_RANKS} ranks, not {len(chosen)}.")
    if missing := [rank for rank in chosen if rank not in series] if series else [0]:
        raise WrongState(
            f"Rank {missing[0]} of run {attempt.run_id} has not reported a step to the probe: wait for its steps, "
            "or choose another rank."
        )


def _series_by_rank(session: Session, fence: int) -> dict[int, Series]:
    rows = session.scalars(select(Series).where(Series.fence == fence, Series.source == "probe"))
    return {int(match[1]): row for row in rows if (match := _TAG.fullmatch(row.tag))}


def _outcome(row: ProfiledRank, state: State, node: str, file: File | None, now: float) -> RankOutcome:
    outcome_state, why = _state(row, state, file, now)
    return RankOutcome(
        rank=row.rank,
        node=node,
        state=outcome_state,
        why=why,
        size_bytes=row.size_bytes or 0,
        step_s_before=row.step_s_before,
        overview=Overview.model_validate(row.overview) if row.overview else None,
    )


def _state(row: ProfiledRank, state: State, file: File | None, now: float) -> tuple[ProfileState, str]:
    if row.state is not None and row.state != ProfileState.RECORDED:
        return ProfileState(row.state), row.why or ""
    if row.state is not None and file is not None and file.size_bytes >= (row.size_bytes or 0):
        return ProfileState.RECORDED, row.why or ""
    if state.is_terminal:
        return ProfileState.FAILED, "the run ended before its trace was written"
    if now > row.until + ANSWER_S:
        return ProfileState.TIMED_OUT, "it did not answer in time"
    return ProfileState.RECORDING, ""


def _view(run_id: str, ranks: list[tuple[ProfiledRank, Attempt, RankOutcome]]) -> ProfileView:
    row, attempt, _ = ranks[0]
    outcomes = [outcome for _, _, outcome in ranks]
    return ProfileView(
        id=row.profile_id,
        state=state_of_all(outcomes),
        attempt=attempt.number,
        ranks=[outcome.rank for outcome in outcomes],
        first_step=row.first_step,
        steps=row.steps,
        requested_at=row.requested_at,
        files=[_file(run_id, row, o) for row, _, o in ranks if o.state == ProfileState.RECORDED],
        outcomes=outcomes,
    )


def _file(run_id: str, row: ProfiledRank, outcome: RankOutcome) -> ProfileFile:
    return ProfileFile(
        rank=row.rank,
        name=f"{run_id}-{row.profile_id}-rank{row.rank}.json.gz",
        size_bytes=outcome.size_bytes,
        path=f"/api/runs/{run_id}/profiles/{row.profile_id}/ranks/{row.rank}/trace",
    )

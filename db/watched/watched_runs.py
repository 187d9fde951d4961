"""Watched runs as people see them, and what cannot be asked of them from here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from db.attempts.liveness import pending_nodes, silent_nodes
from db.attempts.new_attempt import find_checkpoint
from db.exceptions import WrongState
from db.models import Attempt, Run, RunTag, WatchedRun, WatchedTask
from db.people.visibility import visible_runs
from domain.recovery import UnclearCheckpoint
from domain.watched_views import WatchedView
from domain.watching.views import command_again, path_on_machine

_WATCHED = (
    select(WatchedRun, Attempt.fence)
    .join(Attempt, Attempt.run_id == WatchedRun.run_id)
    .where(Attempt.fence.in_(bindparam("fences", expanding=True)))
)
"""Built once: every list of runs asks it."""


def views(session: Session, fences: Sequence[int]) -> Mapping[str, WatchedView]:
    """The watched ones among the runs with these latest attempts, by run id."""
    rows = session.execute(_WATCHED, {"fences": [*fences]}).all()
    count = select(WatchedTask.fence, func.count().label("number")).group_by(WatchedTask.fence)
    joined = count.where(WatchedTask.fence.in_([fence for _, fence in rows]))
    processes = {row.fence: row.number for row in session.execute(joined)} if rows else {}
    return {watched.run_id: _view(watched, processes.get(fence, 0)) for watched, fence in rows}


def _view(watched: WatchedRun, processes: int) -> WatchedView:
    return WatchedView(
        command=shlex.join(watched.command),
        cwd=watched.cwd,
        host=watched.host,
        account=watched.account,
        scheduler=watched.scheduler,
        look_only=watched.look_only,
        processes=processes,
    )


def again(session: Session, run_id: str) -> str | None:
    """The command that starts a watched run again; None where nobody typed one. Raises NoResultFound."""
    watched, run = session.get_one(WatchedRun, run_id), session.get_one(Run, run_id)
    tags = session.scalars(select(RunTag.tag).where(RunTag.run_id == run_id).order_by(RunTag.tag)).all()
    return command_again(
        watched.command, watched.cwd, run.name, run.project, tags, _checkpoint(session, watched),
        look_only=watched.look_only,
    )  # fmt: skip


def _checkpoint(session: Session, watched: WatchedRun) -> str | None:
    """The path of the run's latest complete checkpoint on its machine."""
    try:
        latest = find_checkpoint(session, watched.run_id, None)
    except UnclearCheckpoint:
        return None
    return None if latest is None else path_on_machine(watched.cwd, latest.path)


def check_launched_here(session: Session, run_id: str) -> None:
    """Refuse to start again what somebody else started, with the command that does. Raises WrongState."""
    visible = select(WatchedRun).join(Run, Run.id == WatchedRun.run_id).where(Run.id == run_id, visible_runs())
    if (watched := session.scalar(visible)) is None:
        return
    origin, command = _view(watched, 0).origin, again(session, run_id)
    how = f"start it there: {command}" if command else "start its script or notebook there again"
    raise WrongState(f"Run {run_id} is watched, not launched here: it ran on {origin}. To train again, {how}")


def check_stoppable(session: Session, attempt: Attempt, now: float) -> None:
    """Refuse to stop a run that may only be looked at, unless nothing of it can be heard. Raises WrongState."""
    watched = session.get(WatchedRun, attempt.run_id)
    if watched is None or not watched.look_only:
        return
    pending = pending_nodes(session, [attempt.fence], now).get(attempt.fence, [])
    if len(silent_nodes(pending)) < len(pending):
        raise WrongState(_view(watched, 0).look_only_words)

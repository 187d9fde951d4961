"""The one place that judges whether the actor may do something to an object; what is hidden is answered as absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from db import acting
from db.exceptions import (
    NoSuch,
    NoSuchAlert,
    NoSuchCheckpoint,
    NoSuchCheckpointTask,
    NoSuchLink,
    NoSuchRun,
    NoSuchSnapshot,
    NoSuchStudy,
)
from db.models import Run
from db.people.ownership import ObjectKind, Owned, owned
from domain.people.roles import Action


def permit(session: Session, action: Action, kind: ObjectKind, object_id: str) -> None:
    """Check that the actor may do this to an object; nobody else moves or deletes it before a writing transaction ends.

    Raises the exception of `no_such`, also where the object is hidden from the actor; Denied. For actors who see
    everything, an object that never existed passes, unless it is a run: its reader raises that exception."""
    owners = owned(session, kind, object_id)
    if owners or kind is ObjectKind.RUN or not acting.rights().sees_everything:
        _judge(action, kind, object_id, owners)


def permitted_run(session: Session, action: Action, run_id: str, *, is_deleted: bool = False) -> Run:
    """The run, or with `is_deleted` the deleted run, to which the actor may do this.

    Every change of a run begins with it in the transaction that writes: until its end, nobody else deletes, moves or
    erases the run. Raises NoSuchRun, also where the run is hidden from the actor; Denied."""
    run, noun = session.get(Run, run_id), "deleted run" if is_deleted else "run"
    if run is None or (is_deleted and run.deleted_at is None):
        raise no_such(ObjectKind.RUN, run_id, noun)
    is_absent = run.deleted_at is not None and not is_deleted
    owner = Owned(run.project, run.by, is_absent, run.deleted_by, run.token_id)
    _judge(action, ObjectKind.RUN, run_id, [owner], noun)
    return run


def _judge(action: Action, kind: ObjectKind, object_id: str, owners: Sequence[Owned], noun: str | None = None) -> None:
    """Judge an object by its projects and owners. Raises the exception of `no_such`, with this noun; Denied."""
    rights = acting.rights()
    present = [one for one in owners if not one.is_deleted]
    visible = [one for one in present if one.project is None or rights.sees(one.project, one.by)]
    is_shared = kind is ObjectKind.SNAPSHOT  # the same code of several people: one who may is enough
    if not visible or (len(visible) < len(present) and not is_shared):
        deleted = kind is ObjectKind.RUN and any(one.is_deleted and _may_know(one) for one in owners)
        raise NoSuchRun(deleted_run(object_id, owners[0].deleted_by)) if deleted else no_such(kind, object_id, noun)
    for one in visible[:1] if is_shared else visible:
        rights.check(action, one.project, one.by, one.token_id)


def _may_know(deleted: Owned) -> bool:
    return deleted.project is not None and acting.rights().may(Action.SEE_DELETED, deleted.project)


def deleted_run(run_id: str, by: str | None) -> str:
    """The sentence about a deleted run for members of its project."""
    return f"Run {run_id} was deleted{f' by {by}' if by else ''}; `rankzero runs --deleted` lists it."


def no_such(kind: ObjectKind, object_id: str, noun: str | None = None) -> NoSuch:
    """The exception for an object that does not exist for the actor."""
    exception, usual_noun = _NO_SUCH[kind]
    return exception(f"There is no {noun or usual_noun} {object_id[:LONGEST_ID]!r}.")


LONGEST_ID = 64
"""Characters of an id that an error repeats: a SHA-256 has that many."""
_NO_SUCH: Mapping[ObjectKind, tuple[type[NoSuch], str]] = {
    ObjectKind.RUN: (NoSuchRun, "run"),
    ObjectKind.CHECKPOINT: (NoSuchCheckpoint, "checkpoint"),
    ObjectKind.CHECKPOINT_TASK: (NoSuchCheckpointTask, "checkpoint task"),
    ObjectKind.STUDY: (NoSuchStudy, "study"),
    ObjectKind.ALERT: (NoSuchAlert, "alert"),
    ObjectKind.LINK: (NoSuchLink, "link"),
    ObjectKind.SNAPSHOT: (NoSuchSnapshot, "snapshot"),
}

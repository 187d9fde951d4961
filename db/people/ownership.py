"""Whose an object is, and which projects it belongs to: what rights are judged by."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, bindparam, func, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.models import Alert, Attempt, Checkpoint, CheckpointTask, Run, SharedLink, Study
from domain.choices import RUN_ID
from domain.spec import RunSpec


class ObjectKind(StrEnum):
    """What a request may be about that belongs to a person and a project."""

    RUN = "run_id"
    CHECKPOINT = "checkpoint_id"
    CHECKPOINT_TASK = "task_id"
    STUDY = "study_id"
    ALERT = "alert_id"
    LINK = "link_id"
    SNAPSHOT = "sha256"

    # Their values are the parameters of the routes' paths.


class Owned(NamedTuple):
    """One project that an object belongs to, None if it belongs to all, and its owner there."""

    project: str | None
    by: str | None
    is_deleted: bool = False
    deleted_by: str | None = None
    token_id: str | None = None
    """The token with a budget with which it was made."""


DEFAULT_PROJECT = "default"


def owned(session: Session, kind: ObjectKind, object_id: str) -> list[Owned]:
    """The projects and persons of an object, whose id may be any text; none where there is no such object."""
    return _FINDERS[kind](session, object_id)


def owned_run(store: Store, run_id: str) -> Owned | None:
    """The project and person of a run; None where there is no such run."""
    with store.read() as session:
        return next(iter(owned(session, ObjectKind.RUN, run_id)), None)


def project_column(spec: Any) -> ColumnElement[str]:
    """The project in the column of a spec, as `project_of` has it."""
    return func.coalesce(func.nullif(spec["project"].as_string(), ""), DEFAULT_PROJECT)


def project_of(spec: RunSpec) -> str:
    """The project in which a spec is launched."""
    return spec.project or DEFAULT_PROJECT


def _of_run(session: Session, run_id: str) -> list[Owned]:
    return _read(session, _ONE_RUN, run_id=run_id)


def _of_checkpoint(session: Session, checkpoint_id: str) -> list[Owned]:
    return _read(session, _OF_CHECKPOINT.where(Checkpoint.id == int(checkpoint_id))) if _is_id(checkpoint_id) else []


def _of_checkpoint_task(session: Session, task_id: str) -> list[Owned]:
    query = _OF_CHECKPOINT.join(CheckpointTask, CheckpointTask.checkpoint_id == Checkpoint.id)
    return _read(session, query.where(CheckpointTask.id == int(task_id))) if _is_id(task_id) else []


def _is_id(text: str) -> bool:
    return text.isdecimal() and len(text) <= 18


def _of_study(session: Session, study_id: str) -> list[Owned]:
    study = session.get(Study, study_id) if RUN_ID.fullmatch(study_id) else None
    return [] if study is None else [_study(study)]


def _study(study: Study) -> Owned:
    return Owned(study.spec.get("project") or DEFAULT_PROJECT, study.by, token_id=study.token_id)


def _of_alert(session: Session, alert_id: str) -> list[Owned]:
    alert = session.get(Alert, alert_id) if RUN_ID.fullmatch(alert_id) else None
    if alert is None:
        return []
    run = session.get(Run, alert.run_id) if alert.run_id else None
    is_deleted = run is not None and run.deleted_at is not None
    return [Owned(run.project if run else alert.project, alert.by, is_deleted)]


def _of_link(session: Session, link_id: str) -> list[Owned]:
    link = session.get(SharedLink, link_id)
    if link is None:
        return []
    projects = session.scalars(select(Run.project).where(Run.id.in_(link.runs)).distinct())
    return [Owned(project, link.by) for project in projects] or [Owned(None, link.by)]


def _of_snapshot(session: Session, sha256: str) -> list[Owned]:
    return _read(session, _RUN.where(Run.spec["snapshot"].as_string() == sha256).distinct())


def _read(session: Session, query: Select[str, str | None, bool, str | None, str | None], **values: str) -> list[Owned]:
    return [Owned(*row) for row in session.execute(query, values)]


_RUN = select(Run.project, Run.by, Run.deleted_at.is_not(None), Run.deleted_by, Run.token_id)
_OF_CHECKPOINT = _RUN.join(Attempt, Attempt.run_id == Run.id).join(Checkpoint, Checkpoint.fence == Attempt.fence)
_ONE_RUN = _RUN.where(Run.id == bindparam("run_id"))
"""Built once, which takes longer than running it: it is asked before each request about a run."""
_FINDERS: dict[ObjectKind, Callable[[Session, str], list[Owned]]] = {
    ObjectKind.RUN: _of_run,
    ObjectKind.CHECKPOINT: _of_checkpoint,
    ObjectKind.CHECKPOINT_TASK: _of_checkpoint_task,
    ObjectKind.STUDY: _of_study,
    ObjectKind.ALERT: _of_alert,
    ObjectKind.LINK: _of_link,
    ObjectKind.SNAPSHOT: _of_snapshot,
}

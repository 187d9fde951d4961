"""Work on checkpoints that nodes do: asked for by people, followed, cancelled, reported."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from dashboard.json_responses import document
from dashboard.live.hub import Hub
from dashboard.security.keys.token_files import Credentials
from dashboard.storage.files import Files
from db.checkpoints import task_queries, task_reports, task_requests
from db.engine import Store
from domain.checkpoint_use.tasks import CheckpointTaskReport, CheckpointTaskView, MergeFormat, TaskKind

log = logging.getLogger("rankzero")


class CheckpointTasks:
    """The tasks of one store; safe to use from any thread."""

    def __init__(
        self, store: Store, clock: Callable[[], float], hub: Hub, files: Files, credentials: Credentials
    ) -> None:
        self._store, self._clock, self._hub, self._files, self._credentials = store, clock, hub, files, credentials

    def merge(self, checkpoint_id: int, format: MergeFormat) -> CheckpointTaskView:
        """Have a node merge a checkpoint. Raises NoSuchCheckpoint, WrongState, Denied."""
        return self.ask(TaskKind.MERGE, checkpoint_id, {"format": format})

    def ask(
        self,
        kind: TaskKind,
        checkpoint_id: int,
        options: Mapping[str, Any] | None = None,
        other_id: int | None = None,
    ) -> CheckpointTaskView:
        """Have a node work on a checkpoint. Raises NoSuchCheckpoint, WrongState, Denied."""
        task = task_requests.ask(self._store, kind, checkpoint_id, self._clock(), options, other_id)
        self._hub.desired_state_changed([task.node_id])
        self._hub.publish(task.run_id, {"type": "checkpoints"})
        return self.task(task.id)

    def cancel(self, task_id: int) -> CheckpointTaskView:
        """End a task. Raises NoSuchCheckpointTask, Denied."""
        task = task_requests.cancel(self._store, task_id, self._clock())
        self._files.remove([], task.dropped)
        self._hub.desired_state_changed([task.node_id])
        self._hub.publish(task.run_id, {"type": "checkpoints"})
        return self.task(task_id)

    def task(self, task_id: int) -> CheckpointTaskView:
        """One task as it is now. Raises NoSuchCheckpointTask, Denied."""
        return task_queries.task_view(self._store, task_id)

    def of_run(self, run_id: str, kind: TaskKind | None = None) -> list[CheckpointTaskView]:
        """The tasks about a run's checkpoints, newest first, without their results."""
        return task_queries.tasks_of_run(self._store, run_id, kind)

    def desired(self, node_id: str) -> list[dict[str, Any]]:
        """The tasks that a node is to do, as its worker reads them; each with a token for its attempt alone."""
        with self._store.read() as session:
            tasks = task_reports.desired_tasks(session, node_id)
        return [
            # Without defaults: a worker that lacks a new field of the spec can read what uses none.
            document(task)
            | {
                "spec": document(task.spec.model_dump(exclude_defaults=True)),
                "token": self._credentials.attempt_token(task.fence, node_id),
            }
            for task in tasks
        ]

    def sources(self, node_id: str, fence: int | None) -> set[int]:
        """The ids of the checkpoints that a node downloads for its tasks, or for those of one attempt."""
        with self._store.read() as session:
            tasks = task_reports.desired_tasks(session, node_id, fence)
        return {source.checkpoint_id for task in tasks for source in task.sources}

    def snapshots(self, node_id: str, fence: int | None) -> set[str]:
        """The code whose lock tells a node the packages of its tasks, or of those of one attempt."""
        with self._store.read() as session:
            tasks = task_reports.desired_tasks(session, node_id, fence)
        return {task.spec.snapshot for task in tasks if task.spec.snapshot}

    def reported(self, node_id: str, fence: int, task_id: int, report: CheckpointTaskReport) -> None:
        """Take a node's report. Raises NotOwner."""
        result = task_reports.reported(self._store, node_id, fence, task_id, report, self._clock())
        self._files.remove([], result.dropped)
        self._hub.desired_state_changed([node_id])
        self._hub.publish(result.run_id, {"type": "checkpoints"})

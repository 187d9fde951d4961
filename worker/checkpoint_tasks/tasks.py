"""The work on checkpoints of one node, one task at a time, in a thread of its own."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from domain.checkpoint_use.tasks import CheckpointTaskReport, DesiredCheckpointTask
from domain.clock import SYSTEM_CLOCK, Clock
from domain.text.paths import problem_in_words
from worker.checkpoint_tasks.program import RunProgram, TaskFailed, end_leftovers, run_program
from worker.checkpoint_tasks.work import TaskWork, remove
from worker.launch.preparation import LocalNode
from worker.node.threads import start_thread
from worker.session.answers import Adoption
from worker.session.client import Client
from worker.session.failures import AttemptSuperseded, RequestRefused, ServerAway
from worker.session.server_session import Backoff

log = logging.getLogger(__name__)
TELL_EVERY_S = 1.0
FOLDER = "node/checkpoint-tasks"
"""In the data directory: a folder for each task under way."""


class NodeCheckpointTasks:
    """The tasks of one process; thread-safe. Another worker on the same data begins them anew."""

    def __init__(
        self,
        node: LocalNode,
        client_of: Callable[[DesiredCheckpointTask], Client],
        adoption: Callable[[], Adoption | None],
        run: RunProgram = run_program,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._node, self._client_of, self._adoption, self._run, self._clock = node, client_of, adoption, run, clock
        self._folder = node.data_dir / FOLDER
        self._desired: dict[int, DesiredCheckpointTask] = {}
        self._done: set[int] = set()
        """Those whose end the server has, or that failed to begin."""
        self._lock = threading.Lock()
        self._wake, self._is_closed = threading.Event(), False

    def start(self) -> None:
        """Remove what an earlier worker left, and begin to work."""
        start_thread("checkpoint tasks", self._work, self._clock)

    def set_desired(self, tasks: Sequence[DesiredCheckpointTask]) -> None:
        """Replace the desired tasks; one that is missing from them, or cancelled, ends."""
        with self._lock:
            self._desired = {task.task_id: task for task in tasks}
            self._done &= self._desired.keys()
        self._wake.set()

    @property
    def runs(self) -> set[str]:
        """The runs whose checkpoints are worked on."""
        with self._lock:
            return {task.run_id for task in self._desired.values()}

    def close(self) -> None:
        """End the task under way; the next worker begins it anew."""
        self._is_closed = True
        self._wake.set()

    def _work(self) -> None:
        if self._folder.exists():
            end_leftovers(self._folder, self._clock)
            remove(self._folder)
        while not self._is_closed:
            if (task := self._next()) is not None:
                self._do(task)
            else:
                self._clock.wait(math.inf, self._wake)
                self._wake.clear()

    def _next(self) -> DesiredCheckpointTask | None:
        with self._lock:
            return next((task for number, task in self._desired.items() if number not in self._done), None)

    def _do(self, task: DesiredCheckpointTask) -> None:
        folder = self._folder / str(task.task_id)
        try:
            folder.mkdir(parents=True, mode=0o700)
            report = self._report_of(task, folder)
        except OSError as error:
            report = _failed(f"Node {self._node.name} cannot write to {folder}: {problem_in_words(error)}.")
        finally:
            remove(folder)
        self._tell_end(task, report)

    def _report_of(self, task: DesiredCheckpointTask, folder: Path) -> CheckpointTaskReport:
        """Do the task and return how it ended."""

        def may_continue() -> bool:
            return self._may_continue(task.task_id)

        if not may_continue():
            return CheckpointTaskReport(state="cancelled")
        log.info("checkpoint task %d: %s %s", task.task_id, task.kind.value, task.sources[0].name)
        teller = _Teller(task, self._client_of(task), self._clock)
        teller.tell("begins", 0, None)
        work = TaskWork(
            task, folder, self._node, self._client_of(task), self._adoption(), self._run, teller.tell, may_continue,
            self._clock,
        )  # fmt: skip
        try:
            return work.do()
        except TaskFailed as error:
            return _failed(str(error)) if may_continue() else CheckpointTaskReport(state="cancelled")
        except OSError as error:
            return _failed(f"Node {self._node.name} could not write it: {problem_in_words(error)}. Free some space.")
        except Exception as error:  # a bug of ours, or a message that nobody foresaw: the task must not stay open
            log.exception("checkpoint task %d failed", task.task_id)
            return _failed(f"The worker of node {self._node.name} failed at it ({error!r}): see its log.")

    def _may_continue(self, task_id: int) -> bool:
        task = self._desired.get(task_id)
        return not (self._is_closed or task is None or task.is_cancelled)

    def _tell_end(self, task: DesiredCheckpointTask, report: CheckpointTaskReport) -> None:
        """Report the end until the server has it, or does not want the task any more."""
        backoff = Backoff()
        while not self._is_closed and task.task_id in self._desired:
            try:
                self._client_of(task).report_checkpoint_task(task, report)
                break
            except ServerAway:
                self._clock.pause(backoff.failed(self._clock.now()))
            except AttemptSuperseded as error:
                log.info("checkpoint task %d: %s", task.task_id, error)
                break
            except RequestRefused as error:  # a proxy may take no result of that size: the task must not stay open
                log.info("checkpoint task %d: %s", task.task_id, error)
                if report.state != "succeeded":
                    break
                report = _failed(f"The dashboard did not take the result: {error}")
        with self._lock:
            self._done.add(task.task_id)


class _Teller:
    """Tells the server now and then how far a task is."""

    def __init__(self, task: DesiredCheckpointTask, client: Client, clock: Clock) -> None:
        self._task, self._client, self._clock = task, client, clock
        self._told_at = -math.inf

    def tell(self, doing: str, done_bytes: int, total_bytes: int | None) -> None:
        """Report progress, unless it did a moment ago; what the server does not get now is told with the next."""
        if self._clock.now() - self._told_at < TELL_EVERY_S:
            return
        self._told_at = self._clock.now()
        report = CheckpointTaskReport(
            state="running", doing=doing[:300], done_bytes=done_bytes, total_bytes=total_bytes
        )
        with suppress(ServerAway, RequestRefused, AttemptSuperseded):
            self._client.report_checkpoint_task(self._task, report)


def _failed(message: str) -> CheckpointTaskReport:
    return CheckpointTaskReport(state="failed", message=message[:4000])

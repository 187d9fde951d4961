"""Prepares an attempt on this node before its start, and reports meanwhile what is being done."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from domain.assignments import Assignment
from domain.clock import Clock
from domain.messages import CheckpointFetch, EnvironmentReport, Reason, TaskReport
from domain.text.paths import problem_in_words
from worker.environments.environment import EnvironmentMaker
from worker.launch.preparation import CannotStart, Downloads, LocalNode, prepare
from worker.preflight.rendezvous import Rendezvous
from worker.session.client import Client, TaskRef
from worker.session.failures import AttemptSuperseded, RequestRefused, ServerAway
from worker.staging.staging import DataStager

log = logging.getLogger(__name__)


class Preparation:
    """Brings checkpoint, environment, data and code of one attempt to its directory."""

    def __init__(
        self, folder: Path, node: LocalNode, client: Client, task: TaskRef, is_stopped: Callable[[], bool], clock: Clock
    ) -> None:
        self._folder, self._node, self._client, self._task = folder, node, client, task
        self._is_stopped, self._clock = is_stopped, clock

    def prepare(self, assignment: Assignment, rendezvous: Rendezvous) -> TaskReport | None:
        """Prepare the attempt; return the report of a failure. None: it may start, or was stopped meanwhile."""
        try:
            self._prepare(assignment, rendezvous)
        except CannotStart as error:
            report = rendezvous.failure_report(error.reason, str(error), error.next_step)
            return None if self._is_stopped() else report
        except Exception as error:  # also on a bug of ours: a run must not stay "starting" forever
            name = f"{assignment.run_id}/{assignment.attempt}"
            log.exception("attempt %s could not be prepared", name)
            text = f"The run's directory could not be prepared: {problem_in_words(error) or type(error).__name__}"
            return rendezvous.failure_report(Reason.LAUNCH_FAILED, text)
        return None

    def _prepare(self, assignment: Assignment, rendezvous: Rendezvous) -> None:
        folder, node, client, label = (
            self._folder,
            self._node,
            self._client,
            f"{assignment.run_id}/{assignment.attempt}",
        )
        fetching = Downloads(client, label, self._is_stopped, self._report_fetch, self._clock)
        assignment = EnvironmentMaker(
            folder, node, client, fetching.fetch_code, self._is_stopped, self._report_environment, self._clock
        ).with_environment(assignment)
        data = DataStager(folder, node, client, self._is_stopped, self._report_doing, self._clock)
        assignment = data.with_data(assignment)
        rendezvous.check_node(assignment)
        prepare(assignment, folder, node, fetching.fetch_checkpoint, fetching.fetch_code)
        rendezvous.report_prepared(assignment)

    def _report_fetch(self, fetch: CheckpointFetch) -> None:
        self._report(TaskReport(state="starting", fetching=fetch))

    def _report_environment(self, environment: EnvironmentReport) -> None:
        self._report(TaskReport(state="starting", environment=environment))

    def _report_doing(self, doing: str) -> None:
        self._report(TaskReport(state="starting", doing=doing))

    def _report(self, report: TaskReport) -> None:
        with suppress(ServerAway, RequestRefused, AttemptSuperseded):  # the next report supersedes this one
            self._client.report(self._task, report)

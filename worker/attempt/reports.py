"""Builds and sends the reports of a node's task, and a shorter one if the server refuses the first."""

from __future__ import annotations

import logging
from pathlib import Path

from domain.messages import TaskReport
from worker.launch.preparation import masked_launch
from worker.node.attempt_files import INTERPRETER_FILE, LAUNCH_FILE
from worker.node.state_files import read_object
from worker.session.client import Client, TaskRef
from worker.session.failures import RequestRefused

log = logging.getLogger(__name__)
SHORT_MESSAGE_CHARACTERS = 500


def report_of_life(folder: Path, state: str, pid: int | None) -> TaskReport:
    """The report of a state before the end; the first names the command and the Python that was started."""
    report = TaskReport.model_validate({"state": state, "pid": pid})
    if state == "starting":
        report = report.model_copy(update=masked_launch(read_object(folder / LAUNCH_FILE)))
        report.interpreter = read_object(folder / INTERPRETER_FILE) or None
    return report


def send_report(client: Client, task: TaskRef, report: TaskReport) -> None:
    """Send a report; if it is refused (too large, invalid), send a bare one, because the state must arrive.

    Exceptions of the client pass through; RequestRefused if the bare report is refused as well."""
    try:
        client.report(task, report)
    except (RequestRefused, ValueError) as error:  # ValueError: its text is not valid Unicode
        log.warning("the report of %s was refused, and is sent bare: %s", report.state, str(error)[:500])
        client.report(task, bare(report))


def bare(report: TaskReport) -> TaskReport:
    """The state and its reason in text that every server accepts; no command, environment or traceback."""
    message = report.message and _plain(report.message)
    return TaskReport(
        state=report.state,
        pid=report.pid,
        exit_code=report.exit_code,
        reason=report.reason,
        message=message,
        delivery=report.delivery,
    )


def _plain(text: str) -> str:
    """Shorten the text and remove NULs and unpaired surrogates."""
    text = text.replace("\0", "").encode(errors="backslashreplace").decode()
    return text if len(text) <= SHORT_MESSAGE_CHARACTERS else f"{text[:SHORT_MESSAGE_CHARACTERS]}…"

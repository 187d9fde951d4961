"""What a worker says of its part of an attempt, and what it says instead where that is refused."""

from __future__ import annotations

import logging
from pathlib import Path

from domain.messages import TaskReport
from worker.launch.preparation import as_shown
from worker.node.attempt_files import INTERPRETER_FILE, LAUNCH_FILE
from worker.node.state_files import read_object
from worker.session.client import Client, TaskRef
from worker.session.failures import RequestRefused

log = logging.getLogger(__name__)
SHORT_MESSAGE_CHARACTERS = 500


def report_of_life(folder: Path, state: str, pid: int | None) -> TaskReport:
    """The report of a state before the end; the first one says what was started, and with which Python."""
    report = TaskReport.model_validate({"state": state, "pid": pid})
    if state == "starting":
        report = report.model_copy(update=as_shown(read_object(folder / LAUNCH_FILE)))
        report.interpreter = read_object(folder / INTERPRETER_FILE) or None
    return report


def send_report(client: Client, part: TaskRef, report: TaskReport) -> None:
    """Report; where that is refused as it is (too large, not valid), once more bare: a state must arrive.

    Raises what the client raises; Refused when the bare report is refused as well."""
    try:
        client.report(part, report)
    except (RequestRefused, ValueError) as error:  # ValueError: it holds text that is no Unicode
        log.warning("the report of %s was refused, and is sent bare: %s", report.state, str(error)[:500])
        client.report(part, bare(report))


def bare(report: TaskReport) -> TaskReport:
    """The state and why, in text that every server takes; no command, environment or traceback."""
    message = report.message and _plain(report.message)
    return TaskReport(
        state=report.state,
        pid=report.pid,
        exit_code=report.exit_code,
        reason=report.reason,
        message=message,
    )


def _plain(text: str) -> str:
    """Short, without NUL and unpaired surrogates."""
    text = text.replace("\0", "").encode(errors="backslashreplace").decode()
    return text if len(text) <= SHORT_MESSAGE_CHARACTERS else f"{text[:SHORT_MESSAGE_CHARACTERS]}…"

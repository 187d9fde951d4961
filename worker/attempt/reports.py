"""Builds the reports of an attempt's states from its files on this node, and sends them."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from domain.checkpoints.lfs_pointers import LEAST_BYTES, MOST_BYTES, bytes_of_pointer
from domain.messages import Finding, Reason, SeenRanks, TaskReport
from domain.spec import RunSpec
from worker.attempt.supervisor import recorded_ranks
from worker.diagnosis.causes.files import Workplace
from worker.diagnosis.causes.interfaces import GLOO_VARIABLE, NCCL_VARIABLE, Interfaces
from worker.diagnosis.causes.reruns import Rerun
from worker.diagnosis.diagnose import MESSAGE_LIMIT, EndFacts, explain_end
from worker.diagnosis.rank_ends import rank_ends, ranks_left_early
from worker.launch.preparation import masked_launch
from worker.monitor.memory_watch import last_memory, read_device_memory
from worker.monitor.probe_reader import FOLDER as PROBE_FOLDER
from worker.monitor.probe_reader import ProbeReader
from worker.monitor.reruns import have_stepped_since, read_rerun, rerun_in_outputs
from worker.node.attempt_files import INTERPRETER_FILE, LAUNCH_FILE
from worker.node.regular_files import bytes_of, open_regular
from worker.node.run_files import walk_files
from worker.node.state_files import read_object
from worker.session.client import Client, TaskRef
from worker.session.failures import RequestRefused

log = logging.getLogger(__name__)

TAIL_BYTES = 64 * 1024
SHUTDOWN_MESSAGE = "the worker was shut down"
Shutdown = Literal["worker", "time limit", "slurm"]
"""Why a worker ends its runs: it was stopped, its Slurm job's time limit is near, or Slurm ends the job."""


def report_of_life(folder: Path, state: str, pid: int | None) -> TaskReport:
    """The report of a state before the end; the first names the command and the Python that was started."""
    report = TaskReport.model_validate({"state": state, "pid": pid})
    if state == "starting":
        report = report.model_copy(update=masked_launch(read_object(folder / LAUNCH_FILE)))
        report.interpreter = read_object(folder / INTERPRETER_FILE) or None
    return report


def end_of(
    folder: Path, state: dict[str, Any], launch: dict[str, Any], node: str, node_rank: int, shut_down: bool
) -> TaskReport:
    """The terminal report: `state` is the supervisor's last state, `launch` the contents of launch.json."""
    facts = EndFacts(
        exit_code=state["exit_code"],
        signal=state["signal"],
        launcher=launch.get("launcher", "torchrun"),
        node=node,
        node_rank=node_rank,
        stop_requested=state["stop_requested_at"] is not None,
        killed_by_us=bool(state["killed"]) and state["stop_requested_at"] is not None,
        launch_error=state["launch_error"],
        launcher_err=_tail(folder / "logs" / f"launcher.{'out' if launch.get('is_merged') else 'err'}"),
        world_size=_world_size(folder / "spec.json"),
        rank_errs=_tails(folder / "logs", "out" if _is_one_stream(launch) else "err"),
        rank_outs=_tails(folder / "logs", "out"),
        error_file=_tail(folder / "error.json") or None,
        out_of_memory_kills=state.get("out_of_memory_kills", 0),
        memory_limit_bytes=state.get("memory_limit_bytes"),
        device_memory=read_device_memory(folder / PROBE_FOLDER),
        host_memory=last_memory(folder) if state.get("out_of_memory_kills") else "",
        workplace=_workplace(launch.get("cwd", ""), folder, has_failed=state["exit_code"] != 0),
        terminated_at=_terminated_at(folder, state),
        ended_at=state.get("ended_at"),
        interfaces=_interfaces(launch.get("env") or {}),
    )
    facts = replace(facts, rerun=_rerun(facts, folder), left_early=_left_early(facts, state, folder))
    if was_interrupted(launch, state):
        report = {"state": "stopped", "pid": state["pid"], "exit_code": state["exit_code"]}
        return TaskReport.model_validate(report | {"message": INTERRUPTED, "ended_at": state.get("ended_at")})
    verdict = explain_end(facts)
    message = SHUTDOWN_MESSAGE if shut_down and verdict.state == "stopped" else verdict.message
    return TaskReport(
        state=verdict.state,
        pid=state["pid"],
        exit_code=state["exit_code"],
        reason=verdict.reason,
        message=message,
        next_step=verdict.next_step,
        error=verdict.error,
        ended_at=state.get("ended_at"),
    )


INTERRUPTED = "It was interrupted where it was started: by Ctrl-C, or another SIGINT."


def was_interrupted(launch: dict[str, Any], state: dict[str, Any]) -> bool:
    """Whether the person who started a watched command has ended it in their terminal."""
    by_sigint = state["signal"] == "SIGINT" or state["exit_code"] == 130
    return bool(launch.get("watched")) and by_sigint and state["stop_requested_at"] is None


def _is_one_stream(launch: dict[str, Any]) -> bool:
    """Whether a rank's two streams are one log; ranks that share a terminal have logs of their own for both."""
    return bool(launch.get("is_merged")) and launch.get("output") != "launcher"


def seen_ranks(probe: ProbeReader) -> SeenRanks | None:
    """The ranks that the probe has seen in this attempt on this node; None before the first."""
    probe.look()
    statuses = probe.latest()
    if not statuses:
        return None
    return SeenRanks(ranks=[*statuses], world_size=max(status.world_size for status in statuses.values()))


def with_desync(end: TaskReport, desync: Finding | None) -> TaskReport:
    """The report of a failure that begins with where the ranks' collectives differ; the error itself follows."""
    if desync is None or end.state != "failed" or end.reason == Reason.OUT_OF_MEMORY:
        return end
    if end.error is not None and end.error.exit_code == 0:
        return end  # it names the rank that left, and so why its call never came
    message = f"{desync.evidence[:MESSAGE_LIMIT]} {end.message or ''}".strip()
    return end.model_copy(update={"message": message, "next_step": desync.fix})


def bare_end(state: dict[str, Any], why: str) -> TaskReport:
    """The terminal report without a reason; `why` the attempt's files were not searched for one."""
    exit_code, is_stopped = state["exit_code"], state["stop_requested_at"] is not None
    if exit_code == 0:
        return TaskReport(state="stopped" if is_stopped else "succeeded", pid=state["pid"], exit_code=0)
    return TaskReport(
        state="stopped" if is_stopped else "failed",
        pid=state["pid"],
        exit_code=exit_code,
        reason=None if is_stopped else Reason.EXIT_CODE,
        message=f"Exit code {exit_code}. Its logs could not be explained ({why}).",
        next_step="Read the end of each rank's log, and report this sentence with the worker's log.",
    )


# Sends a report, and a shorter one if the server refuses the first.

SHORT_MESSAGE_CHARACTERS = 500


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


# What the report of an end is read from.

MOST_LOOKED_AT = 20_000
"""Number of files that are looked at for Git LFS pointers."""


def _workplace(cwd: str, folder: Path, *, has_failed: bool) -> Workplace:
    pointers = tuple(_lfs_pointers(Path(cwd))) if cwd and has_failed else ()
    return Workplace(cwd, in_place=cwd != str(folder / "work"), lfs_pointers=pointers)


def _lfs_pointers(cwd: Path) -> Iterator[str]:
    """Yield the paths of Git LFS pointers in the working directory."""
    for entry in islice(walk_files(cwd, lambda name: True), MOST_LOOKED_AT):
        with suppress(OSError):
            is_small = LEAST_BYTES <= entry.stat(follow_symlinks=False).st_size <= MOST_BYTES
            if is_small and bytes_of_pointer(bytes_of(Path(entry.path))):
                yield str(Path(entry.path).relative_to(cwd))


def _rerun(facts: EndFacts, folder: Path) -> Rerun | None:
    """Where the script ran again in a process that a rank started, unless the ranks have trained on since."""
    noted = read_rerun(folder / PROBE_FOLDER)
    if noted is None:
        return rerun_in_outputs(facts.rank_errs or {0: facts.launcher_err})
    probe = ProbeReader(folder / PROBE_FOLDER)
    probe.look()
    return None if have_stepped_since(noted, probe.latest().values()) else noted


def _left_early(facts: EndFacts, state: dict[str, Any], folder: Path) -> tuple[int, ...]:
    """Ranks of this node that ended with 0 by themselves, if torchrun reports that others failed."""
    if facts.launcher == "python" or facts.exit_code in (0, None) or facts.stop_requested:
        return ()
    by_rank = {int(rank): int(pid) for rank, pid in (state.get("ranks") or {}).items()}
    pids = by_rank or recorded_ranks(folder)
    failed = {end.rank for end in rank_ends(facts)}
    return ranks_left_early(pids, facts.launcher_err, failed) if failed else ()


def _terminated_at(folder: Path, state: dict[str, Any]) -> float | None:
    """When a rank was first told to end, if it was not by us and all ended with 0."""
    if state["exit_code"] != 0 or state["stop_requested_at"] is not None:
        return None
    probe = ProbeReader(folder / PROBE_FOLDER)
    probe.look()
    return min(probe.terminations().values(), default=None)


def _interfaces(env: dict[str, str]) -> Interfaces:
    """The interfaces of this node, and those that the run's environment names."""
    values = {name: env.get(name) or os.environ.get(name, "") for name in (GLOO_VARIABLE, NCCL_VARIABLE)}
    present = [name for _, name in socket.if_nameindex()]
    return Interfaces(present, {name: value for name, value in values.items() if value})


def _tails(logs: Path, stream: str) -> dict[int, str]:
    """The last bytes of one stream of every rank, by rank."""
    tails = {}
    for path in logs.glob(f"rank*.{stream}"):
        if match := re.fullmatch(r"rank(\d+)", path.stem):
            tails[int(match[1])] = _tail(path)
    return tails


def _world_size(path: Path) -> int | None:
    try:
        return RunSpec.model_validate_json(bytes_of(path)).world_size
    except (OSError, ValueError):
        return None


def _tail(path: Path) -> str:
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            return file.read(TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""

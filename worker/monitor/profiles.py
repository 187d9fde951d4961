"""Pass a requested profile on to this node's ranks, and report what their traces show."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

from pydantic import ValidationError

from domain.assignments import ProfileRequest
from domain.profiles.records import RankProfile
from domain.text.json_values import parse_json
from worker.monitor.probe_reader import FOLDER as PROBE_FOLDER
from worker.node.regular_files import bytes_of
from worker.node.run_files import PROFILES
from worker.node.state_files import read_object, write_whole
from worker.session.client import Client, TaskRef
from worker.session.failures import RequestRefused
from worker.streams.masked_traces import is_trace_masked

log = logging.getLogger(__name__)
REQUEST_FILE = "profile.json"
"""Below the probe's folder, where the ranks look for it."""
MAX_TRACE_BYTES = 100_000_000
"""Packed; a larger trace has no overview, since reading it would take gigabytes of the node's memory."""


class ProfileReporter:
    """Reporter of one attempt on this node; its methods are called by one thread."""

    def __init__(self, folder: Path, client: Client, task: TaskRef, label: str) -> None:
        self._folder, self._client, self._task, self._label = folder, client, task, label
        self._request: ProfileRequest | None = None
        self._unanswered: set[int] = set()
        self._summaries: dict[int, subprocess.Popen[bytes]] = {}

    def request(self, request: ProfileRequest | None) -> None:
        """Pass a new request on to the ranks."""
        if request is None or (self._request is not None and request.id == self._request.id):
            return
        self._request, self._unanswered = request, set(request.ranks)
        path = self._folder / PROBE_FOLDER / REQUEST_FILE
        try:
            if read_object(path).get("id") != request.id:
                write_whole(path, json.dumps(request.model_dump() | {"folder": str(self._traces)}))
        except OSError as error:
            log.error("attempt %s: the request for a profile was not written: %s", self._label, error)

    @property
    def is_pending(self) -> bool:
        """Whether a rank's answer is expected."""
        return bool(self._unanswered)

    def step(self) -> bool:
        """Report the ranks that have answered; True while a trace is being summarised. Raises ServerAway."""
        for rank in sorted(self._unanswered):
            if (outcome := self._outcome(rank)) is not None:
                self._report(outcome)
                self._unanswered.discard(rank)
        return bool(self._summaries)

    @property
    def _traces(self) -> Path:
        return self._folder / PROFILES / (self._request.id if self._request else "")

    def _outcome(self, rank: int) -> RankProfile | None:
        """Return what became of the profile in this rank; None before its answer."""
        answer = read_object(self._traces / f"rank{rank}.json")
        if not answer or self._request is None:
            return None
        try:
            outcome = RankProfile(profile=self._request.id, rank=rank, **answer)
        except (TypeError, ValidationError):
            return RankProfile(profile=self._request.id, rank=rank, state="failed", why="its answer cannot be read")
        outcome = self._masked(outcome) if outcome.state == "recorded" else outcome
        return self._summarised(outcome) if outcome.state == "recorded" else outcome

    def _masked(self, outcome: RankProfile) -> RankProfile:
        """Return the outcome once secrets in its trace are masked, which may change its size."""
        if not self._task.mask:
            return outcome
        trace = self._traces / f"trace{outcome.rank}.json.gz"
        if not is_trace_masked(trace, self._task.mask):
            return outcome.model_copy(update={"state": "failed", "why": "its trace cannot be read"})
        return outcome.model_copy(update={"size_bytes": trace.stat().st_size})

    def _summarised(self, outcome: RankProfile) -> RankProfile | None:
        """Return the outcome with its overview; None while a process computes it."""
        trace = self._traces / f"trace{outcome.rank}.json.gz"
        named = outcome.model_copy(update={"file": trace.relative_to(self._folder).as_posix()})
        if outcome.size_bytes > MAX_TRACE_BYTES:
            return named.model_copy(update={"why": "its trace is too large for an overview; open it in Perfetto"})
        if outcome.rank not in self._summaries:
            self._summaries[outcome.rank] = _start_summary(trace)
            return None
        process = self._summaries[outcome.rank]
        if process.poll() is None:
            return None
        del self._summaries[outcome.rank]
        return _with_summary(named, trace, process.returncode)

    def _report(self, outcome: RankProfile) -> None:
        try:
            self._client.profile(self._task, outcome)
        except RequestRefused as refusal:
            log.error("attempt %s: a profile was refused: %s", self._label, refusal)


def _start_summary(trace: Path) -> subprocess.Popen[bytes]:
    """Start to read the trace in a process of its own: it would hold up all attempts of this worker."""
    argv = [sys.executable, "-P", "-m", "worker.monitor.profile_summary", str(trace)]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def _with_summary(outcome: RankProfile, trace: Path, exit_code: int) -> RankProfile:
    """Return the outcome with the fields that the trace's summary gives, or why it gives none."""
    path = trace.with_name(f"{trace.name}.summary")
    try:
        summary = parse_json(bytes_of(path))
        os.unlink(path)  # noqa: PTH108
        return RankProfile(**(outcome.model_dump() | summary))
    except (OSError, TypeError, ValueError):
        why = f"its trace could not be summarised (exit code {exit_code}); open it in Perfetto"
        return outcome.model_copy(update={"why": why})

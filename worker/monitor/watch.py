"""Check an attempt while it trains: hangs, silent mistakes, memory leaks, losses not finite or not changing."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from domain.clock import SYSTEM_CLOCK, Clock
from domain.collectives import CollectivesVerdict, RankCollectives
from domain.messages import Finding, Reason, TaskReport
from domain.spec import RunSpec
from worker.diagnosis.causes.reruns import Rerun
from worker.monitor import reruns
from worker.monitor.collective_watch import Align, CollectivesWatch, fetch_records
from worker.monitor.hangs import HangVerdict, PythonFrame, RankStatus, hang_verdict
from worker.monitor.losses import LossWatch
from worker.monitor.memory_watch import MemoryWatch
from worker.monitor.probe_reader import ProbeReader, RankRecorder
from worker.monitor.silent_mistakes import silent_mistakes
from worker.node.regular_files import bytes_of
from worker.node.state_files import write_whole

LOSSES_FILE = "worker/losses.json"
HUNG_FILE = "worker/hung"
"""Holds the sentence with which the attempt is ended because it hangs."""


class Watch:
    """Checks of one attempt on this node; its methods are called by one thread."""

    def __init__(
        self,
        folder: Path,
        spec: RunSpec,
        probe: ProbeReader,
        clock: Clock = SYSTEM_CLOCK,
        align: Align = lambda _: None,
    ) -> None:
        self._collectives = CollectivesWatch(folder, probe, align, clock)
        self._folder, self._spec, self._probe, self._clock = folder, spec, probe, clock
        self.losses = _read_losses(folder, is_fresh=not (folder / "resume").exists())
        """Takes the points that the server has stored."""
        self._saved_losses = self.losses.model_dump_json()
        self._memory = MemoryWatch(folder)
        self._stopped = StoppedRanks()
        self._stacks = StackRequest(probe, clock)
        self._hang: Finding | None = None
        self._rerun: Rerun | None = None

    def judge(self) -> list[Finding]:
        """Return the findings now, the most severe first."""
        self._probe.look()
        self._memory.look()
        self._rerun = self._rerun or reruns.read_rerun(self._probe.folder)
        self._hang = self._check_hang()
        self._save_losses()
        return self._stopped.findings(self._probe.latest().values()) + self._findings()

    def judge_end(self) -> list[Finding]:
        """Return the findings at the end; keep the hang for which the attempt was ended."""
        self._probe.look()
        self._memory.look()
        return ([] if self._hang else self._collectives.judge_end()) + self._findings()

    @property
    def hang(self) -> str | None:
        """One sentence while the ranks hang, else None."""
        return self._hang.evidence if self._hang else None

    @property
    def desync(self) -> Finding | None:
        """Where ranks left their common path of collectives and ended for it; known at the end."""
        return self._collectives.end

    @property
    def is_requesting_stacks(self) -> bool:
        """Whether stacks are being requested because the ranks seem to hang: check again soon."""
        return self._stacks.is_pending

    def _findings(self) -> list[Finding]:
        records = self._probe.records()
        mistakes = silent_mistakes(records)
        faults = fault_findings(self._probe.faults())
        leaks = self._memory.findings(records)
        return self._standstill() + self.losses.findings() + leaks + mistakes + faults

    def _standstill(self) -> list[Finding]:
        if self._hang is not None:
            return [self._hang]
        return [reruns.finding(self._rerun)] if self._rerun else []

    def _check_hang(self) -> Finding | None:
        statuses = self._probe.latest()
        verdict = self._hang_verdict(statuses)
        if verdict is None:
            self._stacks.discard()
            self._collectives.discard()
            return None
        frames = self._stacks.answer(list(statuses.values()))
        if frames is None:  # just requested: the finding is reported with its lines, or not at all
            return self._hang
        sampled = {
            rank: replace(status, frames=tuple(frames.get(rank) or status.frames)) for rank, status in statuses.items()
        }
        desync = self._collectives.align(self._stacks.collectives)
        return _hang_finding(self._hang_verdict(sampled) or verdict, desync, self._rerun)

    def _hang_verdict(self, statuses: Mapping[int, RankStatus]) -> HangVerdict | None:
        median_step_s = self._probe.median_step_s()
        lost_at = self._rerun.at if self._rerun else None
        return hang_verdict(statuses.values(), self._clock.wall(), median_step_s, self._spec.hang_after_s, lost_at)

    def _save_losses(self) -> None:
        text = self.losses.model_dump_json()
        if text != self._saved_losses:
            self._saved_losses = text
            with suppress(OSError):  # a full disk: a restarted worker starts over
                write_whole(self._folder / LOSSES_FILE, text)


def with_hang_reason(end: TaskReport, folder: Path) -> TaskReport:
    """Return the report of an attempt's end, with the reason `hung` if it was stopped because it hung."""
    with suppress(OSError):
        sentence = bytes_of(folder / HUNG_FILE).decode()
        if end.state == "stopped":
            return end.model_copy(update={"state": "failed", "reason": Reason.HUNG, "message": sentence})
    return end


def _hang_finding(verdict: HangVerdict, desync: CollectivesVerdict | None, rerun: Rerun | None) -> Finding:
    if rerun is not None:
        finding = reruns.finding(rerun)
        return finding.model_copy(update={"kind": "hung", "evidence": f"{finding.evidence} {verdict.sentence}"})
    return Finding(
        kind="hung",
        evidence=f"{desync.sentence} {verdict.sentence}" if desync else verdict.sentence,
        meaning="The ranks wait for each other, or for something that never arrives. It rarely recovers on its own.",
        fix="Check the lines above: a collective that not all ranks reach (an if rank == 0 around it, unequal "
        "numbers of batches), a data loader that waits, a lock. Stop the run and resume it from its latest "
        "checkpoint; with --on-hang resume this happens automatically.",
    )


def _read_losses(folder: Path, *, is_fresh: bool) -> LossWatch:
    with suppress(OSError, ValueError):
        return LossWatch.model_validate_json(bytes_of(folder / LOSSES_FILE))
    return LossWatch(is_fresh=is_fresh)


# Report failed parts of the probe as a finding. Pure.

KIND = "probe part failed"
MOST_NAMED = 8


def fault_findings(faults: Sequence[str]) -> list[Finding]:
    """Return one finding for the faults of all ranks (one sentence each), or none."""
    if not faults:
        return []
    sentences = list(dict.fromkeys(faults))[:MOST_NAMED]
    unnamed = len(set(faults)) - len(sentences)
    return [
        Finding(
            kind=KIND,
            evidence="; ".join(sentences)[:7800]
            + (f"; and {unnamed} more" if unnamed else "")
            + "; the training is not affected.",
            meaning="What this part measures on the rank (steps, waiting, memory or silent mistakes) is missing from "
            "now on, so a hang or a mistake may go unnoticed. Logged metrics, logs and checkpoints are not affected.",
            fix="The usual cause is a version of torch that the probe does not know yet, or a script that replaces a "
            "part of torch. Report the sentence above with the versions on the run's Code tab; probe: false in the "
            "spec (--no-probe) switches the probe off.",
        )
    ]


# Recognise ranks whose process is stopped: by SIGSTOP, by reading from a terminal, or by a debugger.

RANK_STOPPED = "stopped rank"
STOPPED, TRACED = "T", "t"
ReadStatus = Callable[[int], str]


class StoppedRanks:
    """Remembers the ranks that were stopped at the last look: a debugger stops a process often for a moment."""

    def __init__(self, read_status: ReadStatus | None = None) -> None:
        self._read_status = read_status or _status_of
        self._before: set[int] = set()

    def findings(self, statuses: Collection[RankStatus]) -> list[Finding]:
        """Return a finding for each rank that is stopped at two looks in succession."""
        texts = {status: self._read_status(status.pid) for status in statuses if not status.ended}
        stopped = {status: text for status, text in texts.items() if _field(text, "State")[:1] in ("T", "t")}
        lasting = {status: text for status, text in stopped.items() if status.pid in self._before}
        self._before = {status.pid for status in stopped}
        return [_finding(status, text) for status, text in sorted(lasting.items(), key=lambda item: item[0].rank)]


def _finding(status: RankStatus, text: str) -> Finding:
    node, tracer = socket.gethostname(), _field(text, "TracerPid")
    if _field(text, "State").startswith(TRACED) and tracer not in ("", "0"):
        how, fix = f"a debugger (pid {tracer}) holds it", f"Detach the debugger on node {node}."
    else:
        how = "state T: by SIGSTOP, SIGTSTP or SIGTTIN"
        fix = f"Continue it: kill -CONT {status.pid} on node {node}."
    return Finding(
        kind=RANK_STOPPED,
        evidence=f"Rank {status.rank} (pid {status.pid} on node {node}) is stopped after step {status.step}; {how}.",
        meaning="A stopped process does nothing, and the other ranks wait for it in their next collective.",
        fix=fix,
    )


def _status_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/status").read_text()
    return ""


def _field(text: str, name: str) -> str:
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(f"{name}:")), "")


log = logging.getLogger(__name__)

# Request the stacks and collectives of a node's ranks without blocking.

ASK_AGAIN_S = 60.0


class StackRequest:
    """Requests stacks and records of collectives in a thread of its own: ranks may take seconds to answer."""

    def __init__(self, probe: ProbeReader, clock: Clock) -> None:
        self._probe, self._clock = probe, clock
        self._has_ended: threading.Event | None = None
        self._frames: dict[int, list[PythonFrame]] | None = None
        self._requested_at = 0.0
        self.collectives: list[RankCollectives] = []
        """The records that came with the latest stacks."""

    def answer(self, statuses: Sequence[RankStatus]) -> dict[int, list[PythonFrame]] | None:
        """Return the latest stacks by rank, None before the first answer; request them again every minute."""
        now = self._clock.now()
        if not self.is_pending and (self._frames is None or now - self._requested_at >= ASK_AGAIN_S):
            self._requested_at = now
            self._has_ended = self._clock.start("stacks", partial(self._request, statuses, self._probe.recorders()))
        return self._frames

    def discard(self) -> None:
        """Discard the stacks: the ranks step again."""
        if not self.is_pending:
            self._frames, self._has_ended, self.collectives = None, None, []

    @property
    def is_pending(self) -> bool:
        """Whether a request is pending."""
        return self._has_ended is not None and not self._has_ended.is_set()

    def _request(self, statuses: Sequence[RankStatus], recorders: Mapping[int, RankRecorder]) -> None:
        frames = self._probe.ask_stacks(statuses)
        try:
            self.collectives = fetch_records(self._probe.folder, statuses, frames, recorders, self._clock)
        except Exception:
            log.exception("the records of collectives could not be read")
        self._frames = frames

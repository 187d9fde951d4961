"""Check an attempt while it trains: hangs, silent mistakes, memory leaks, losses not finite or not changing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from domain.collective_records import CollectivesVerdict
from domain.messages import Finding, Point, Reason, TaskReport
from domain.spec import RunSpec
from worker.monitor.collective_watch import Align, CollectivesWatch
from worker.monitor.hangs import HangVerdict, RankStatus, hang_verdict
from worker.monitor.losses import LossWatch
from worker.monitor.memory_watch import MemoryWatch
from worker.monitor.probe_faults import fault_findings
from worker.monitor.probe_reader import ProbeReader
from worker.monitor.silent_mistakes import silent_mistakes
from worker.monitor.stacks import StackRequest
from worker.monitor.stopped_ranks import StoppedRanks
from worker.node.state_files import write_whole

LOSSES_FILE = "worker/losses.json"
HUNG_FILE = "worker/hung"
"""Holds the sentence with which the attempt is ended because it hangs."""

Clock = Callable[[], float]


class Watch:
    """Checks of one attempt on this node; its methods are called by one thread."""

    def __init__(
        self,
        folder: Path,
        spec: RunSpec,
        probe: ProbeReader,
        clock: Clock = time.time,
        align: Align = lambda _: None,
    ) -> None:
        self._collectives = CollectivesWatch(folder, probe, align)
        self._folder, self._spec, self._probe, self._clock = folder, spec, probe, clock
        self._losses = _read_losses(folder, is_fresh=not (folder / "resume").exists())
        self._saved_losses = self._losses.model_dump_json()
        self._memory = MemoryWatch(folder)
        self._stopped = StoppedRanks()
        self._stacks = StackRequest(probe)
        self._hang: Finding | None = None

    def take_points(self, series: Mapping[str, Sequence[Point]], source: str) -> None:
        """Add points that the server has stored."""
        self._losses.take(series, source)

    def judge(self) -> list[Finding]:
        """Return the findings now, the most severe first."""
        self._probe.look()
        self._memory.look()
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
        return ([self._hang] if self._hang else []) + self._losses.findings() + leaks + mistakes + faults

    def _check_hang(self) -> Finding | None:
        statuses = self._probe.latest()
        verdict = self._hang_verdict(statuses)
        if verdict is None:
            self._stacks.discard()
            self._collectives.discard()
            return None
        frames = self._stacks.answer(self._clock(), list(statuses.values()))
        if frames is None:  # just requested: the finding is reported with its lines, or not at all
            return self._hang
        sampled = {
            rank: replace(status, frames=tuple(frames.get(rank) or status.frames)) for rank, status in statuses.items()
        }
        desync = self._collectives.align(self._stacks.collectives)
        return _hang_finding(self._hang_verdict(sampled) or verdict, desync)

    def _hang_verdict(self, statuses: Mapping[int, RankStatus]) -> HangVerdict | None:
        median_step_s = self._probe.median_step_s()
        return hang_verdict(statuses.values(), self._clock(), median_step_s, self._spec.hang_after_s)

    def _save_losses(self) -> None:
        text = self._losses.model_dump_json()
        if text != self._saved_losses:
            self._saved_losses = text
            with suppress(OSError):  # a full disk: a restarted worker starts over
                write_whole(self._folder / LOSSES_FILE, text)


def with_hang_reason(end: TaskReport, folder: Path) -> TaskReport:
    """Return the report of an attempt's end, with the reason `hung` if it was stopped because it hung."""
    with suppress(OSError):
        sentence = (folder / HUNG_FILE).read_text()
        if end.state == "stopped":
            return end.model_copy(update={"state": "failed", "reason": Reason.HUNG, "message": sentence})
    return end


def _hang_finding(verdict: HangVerdict, desync: CollectivesVerdict | None) -> Finding:
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
        return LossWatch.model_validate_json((folder / LOSSES_FILE).read_bytes())
    return LossWatch(is_fresh=is_fresh)

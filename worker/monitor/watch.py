"""Judges an attempt while it trains: is it hung, does it make a mistake nobody is told of, is its loss a number."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from domain.messages import Finding, Point, Reason, TaskReport
from domain.spec import RunSpec
from worker.monitor.hangs import HangVerdict, RankStatus, hang_verdict
from worker.monitor.losses import LossWatch
from worker.monitor.probe_faults import fault_findings
from worker.monitor.probe_reader import ProbeReader
from worker.monitor.silent_mistakes import silent_mistakes
from worker.monitor.stacks import StackQuestion
from worker.node.state_files import write_whole

LOSSES_FILE = "worker/losses.json"
HUNG_FILE = "worker/hung"
"""The sentence with which the attempt is ended because it hangs."""

Clock = Callable[[], float]


class Watch:
    """One attempt's part on this node; its methods are called by one thread."""

    def __init__(self, folder: Path, spec: RunSpec, probe: ProbeReader, clock: Clock = time.time) -> None:
        self._folder, self._spec, self._probe, self._clock = folder, spec, probe, clock
        self._losses = _read_losses(folder, is_fresh=not (folder / "resume").exists())
        self._kept_losses = self._losses.model_dump_json()
        self._stacks = StackQuestion(probe)
        self._hang: Finding | None = None

    def take_points(self, series: Mapping[str, Sequence[Point]], source: str) -> None:
        """Points the server has stored."""
        self._losses.take(series, source)

    def judge(self) -> list[Finding]:
        """All that is wrong now, the gravest first."""
        self._probe.look()
        self._hang = self._judge_hang()
        self._keep_losses()
        return self._all()

    def judge_end(self) -> list[Finding]:
        """All that was wrong in the end: a hang that it was ended for stays."""
        self._probe.look()
        return self._all()

    @property
    def hang(self) -> str | None:
        """In a sentence, while it hangs."""
        return self._hang.evidence if self._hang else None

    @property
    def is_asking(self) -> bool:
        """It seems to hang, and the ranks were asked where they stand: judge again soon."""
        return self._stacks.is_asking

    def _all(self) -> list[Finding]:
        mistakes = [
            Finding(kind=each.kind, evidence=each.evidence, meaning=each.meaning, mend=each.mend)
            for each in silent_mistakes(self._probe.records())
        ]
        faults = fault_findings(self._probe.faults())
        return ([self._hang] if self._hang else []) + self._losses.findings() + mistakes + faults

    def _judge_hang(self) -> Finding | None:
        statuses = self._probe.latest()
        verdict = self._verdict(statuses)
        if verdict is None:
            self._stacks.forget()
            return None
        frames = self._stacks.answer(self._clock(), list(statuses.values()))
        if frames is None:  # asked just now: the finding comes with its lines, or not at all
            return self._hang
        asked = {
            rank: replace(status, frames=tuple(frames.get(rank) or status.frames))
            for rank, status in statuses.items()
        }
        return _hung(self._verdict(asked) or verdict)

    def _verdict(self, statuses: Mapping[int, RankStatus]) -> HangVerdict | None:
        median_step_s = self._probe.median_step_s()
        return hang_verdict(statuses.values(), self._clock(), median_step_s, self._spec.hang_after_s)

    def _keep_losses(self) -> None:
        text = self._losses.model_dump_json()
        if text != self._kept_losses:
            self._kept_losses = text
            with suppress(OSError):  # a full disk: a restarted worker begins anew
                write_whole(self._folder / LOSSES_FILE, text)


def as_hung(end: TaskReport, folder: Path) -> TaskReport:
    """The end of an attempt, which we have stopped ourselves if it hung."""
    with suppress(OSError):
        sentence = (folder / HUNG_FILE).read_text()
        if end.state == "stopped":
            return end.model_copy(update={"state": "failed", "reason": Reason.HUNG, "message": sentence})
    return end


def _hung(verdict: HangVerdict) -> Finding:
    return Finding(
        kind="hung",
        evidence=verdict.sentence,
        meaning="The ranks wait for each other, or for something that does not come; by itself this seldom ends.",
        mend="Look at the lines above: a collective that not all ranks reach (an if rank == 0 around it, unequal "
        "numbers of batches), a data loader that waits, a lock. Stop the run and resume it from its latest "
        "checkpoint; launched with --on-hang resume that happens by itself.",
    )


def _read_losses(folder: Path, *, is_fresh: bool) -> LossWatch:
    with suppress(OSError, ValueError):
        return LossWatch.model_validate_json((folder / LOSSES_FILE).read_bytes())
    return LossWatch(is_fresh=is_fresh)

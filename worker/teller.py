"""Tells the server what is wrong with an attempt that trains, and where its ranks stand when somebody asks."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from db.spec import RunSpec
from db.states import Finding, Findings, Point, StackFrame, Stacks
from worker.client import Client, Part, Refused, ServerAway
from worker.hangs import Frame
from worker.probe_reader import FOLDER, ProbeReader
from worker.stack_question import StackQuestion
from worker.watch import Watch

log = logging.getLogger(__name__)
EVERY_S = 5.0
ASKING_EVERY_S = 1.0


class Teller:
    """Of one attempt's part; its methods are called by one thread."""

    def __init__(self, folder: Path, spec: RunSpec, client: Client, part: Part, label: str) -> None:
        self._client, self._part, self._label = client, part, label
        self._probe = ProbeReader(folder / FOLDER)
        self._watch = Watch(folder, spec, self._probe)
        self._told: list[Finding] | None = None
        self._question = StackQuestion(self._probe)
        self._wanted_at = self._answered_at = 0.0
        self._judged_at = float("-inf")

    def take_points(self, series: Mapping[str, Sequence[Point]], source: str) -> None:
        """Points the server has stored."""
        self._watch.take_points(series, source)

    def want_stacks(self, requested_at: float | None) -> None:
        """Somebody asked, at this time by the server's clock, where every rank stands."""
        self._wanted_at = requested_at or 0.0

    def step(self, now: float) -> None:
        """Judge and tell when it is due. What the server raises goes through."""
        if now - self._judged_at >= (ASKING_EVERY_S if self._watch.is_asking else EVERY_S):
            self._judged_at = now
            self._tell(self._watch.judge())
        if self._wanted_at > self._answered_at:
            self._answer_stacks()

    def finish(self, more: Sequence[Finding] = ()) -> None:
        """After the end: the last word, with what others found."""
        self._tell([*self._watch.judge_end(), *more])

    @property
    def hang(self) -> str | None:
        """In a sentence, while the ranks hang."""
        return self._watch.hang

    def _tell(self, findings: list[Finding]) -> None:
        """A worker that has just started says it in any case: it does not know what was said before it."""
        if findings == self._told:
            return
        self._told = findings
        try:
            self._client.findings(self._part, Findings(findings=findings))
        except ServerAway:
            self._told = None
            raise
        except Refused as refusal:
            log.error("attempt %s: what was found wrong was refused: %s", self._label, refusal)

    def _answer_stacks(self) -> None:
        """Asked in one turn, answered in a later one: the ranks may take seconds."""
        self._probe.look()
        frames = self._question.answer(time.time(), list(self._probe.latest().values()))
        if frames is None or self._question.is_asking:
            return
        ranks = {rank: [_frame(each) for each in stack] for rank, stack in frames.items()}
        said = Stacks(requested_at=self._wanted_at, at=time.time(), ranks=ranks)
        self._client.stacks(self._part, said)
        self._answered_at = self._wanted_at
        self._question.forget()


def _frame(frame: Frame) -> StackFrame:
    return StackFrame(file=frame.file, line=frame.line, function=frame.function)

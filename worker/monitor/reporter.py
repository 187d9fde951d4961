"""Tells the server what is wrong with an attempt that trains, and where its ranks stand when somebody asks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from domain.messages import Finding, Findings, Point, StackFrame, Stacks
from domain.spec import RunSpec
from worker.monitor.hangs import PythonFrame
from worker.monitor.probe_reader import FOLDER, ProbeReader
from worker.monitor.stacks import StackQuestion
from worker.monitor.watch import Watch
from worker.session.client import Client, TaskRef
from worker.session.failures import RequestRefused, ServerAway, TooLarge
from worker.streams.omissions import Omissions

log = logging.getLogger(__name__)
EVERY_S = 5.0
ASKING_EVERY_S = 1.0
EVIDENCE_CHARACTERS = (8000, 500, 100)
"""So much of each finding is said: less where more is too large to pass."""
STACK_FRAMES = (1000, 16, 1)
"""The same of a rank's stack, the innermost."""


class Teller:
    """Of one attempt's part; its methods are called by one thread."""

    def __init__(
        self, folder: Path, spec: RunSpec, client: Client, part: TaskRef, label: str, omissions: Omissions
    ) -> None:
        self._client, self._part, self._label = client, part, label
        self._omissions = omissions
        self._probe = ProbeReader(folder / FOLDER)
        self._watch = Watch(folder, spec, self._probe)
        self._told: list[Finding] | None = None
        self._question = StackQuestion(self._probe)
        self._wanted_at = self._answered_at = 0.0
        self._judged_at = float("-inf")
        self.refused: Callable[[], list[Finding]] = list
        """What else is wrong: data that the server does not take."""

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
            self._tell([*self._watch.judge(), *self._omissions.findings(), *self.refused()])
        if self._wanted_at > self._answered_at:
            self._answer_stacks()

    def finish(self, more: Sequence[Finding] = ()) -> None:
        """After the end: the last word, with what others found."""
        self._tell([*self._watch.judge_end(), *self._omissions.findings(), *more, *self.refused()])

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
            _say(EVIDENCE_CHARACTERS, lambda most: self._client.findings(self._part, _short(findings, most)))
        except ServerAway:
            self._told = None
            raise
        except RequestRefused as refusal:
            log.error("attempt %s: what was found wrong was refused: %s", self._label, refusal)

    def _answer_stacks(self) -> None:
        """Asked in one turn, answered in a later one: the ranks may take seconds."""
        self._probe.look()
        frames = self._question.answer(time.time(), list(self._probe.latest().values()))
        if frames is None or self._question.is_asking:
            return
        at = time.time()

        def answer(most: int) -> None:
            ranks = {rank: [_frame(each) for each in stack[:most]] for rank, stack in frames.items()}
            self._client.stacks(self._part, Stacks(requested_at=self._wanted_at, at=at, ranks=ranks))

        try:
            _say(STACK_FRAMES, answer)
        except RequestRefused as refusal:  # nothing is asked again and again for it
            log.error("attempt %s: where its ranks stand was refused: %s", self._label, refusal)
        self._answered_at = self._wanted_at
        self._question.forget()


def _say(sizes: Sequence[int], say: Callable[[int], None]) -> None:
    """In the largest of the sizes that passes. Raises what `say` raises."""
    for size in sizes[:-1]:
        with suppress(TooLarge):
            return say(size)
    return say(sizes[-1])


def _short(findings: Sequence[Finding], most: int) -> Findings:
    return Findings(
        findings=[each.model_copy(update={"evidence": each.evidence[:most]}) for each in findings]
    )


def _frame(frame: PythonFrame) -> StackFrame:
    return StackFrame(file=frame.file, line=frame.line, function=frame.function)

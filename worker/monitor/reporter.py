"""Report findings of a training attempt to the server, and its ranks' stacks on request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from domain.clock import SYSTEM_CLOCK, Clock
from domain.collectives import CollectivesVerdict, NodeCollectives
from domain.messages import Finding, Findings, Point, StackFrame, Stacks
from domain.spec import RunSpec
from worker.monitor.hangs import PythonFrame
from worker.monitor.probe_reader import FOLDER, ProbeReader
from worker.monitor.watch import StackRequest, Watch
from worker.session.client import Client, TaskRef
from worker.session.failures import RequestRefused, ServerAway, TooLarge
from worker.streams.omissions import Omissions

log = logging.getLogger(__name__)
EVERY_S = 5.0
STACKS_EVERY_S = 1.0
EVIDENCE_CHARACTERS = (8000, 500, 100)
"""Characters of each finding's evidence; the next size is used if the request is too large."""
STACK_FRAMES = (1000, 16, 1)
"""Innermost frames of each rank's stack; the next size is used if the request is too large."""


class FindingsReporter:
    """Reporter of one attempt on this node; its methods are called by one thread."""

    def __init__(
        self,
        folder: Path,
        spec: RunSpec,
        client: Client,
        task: TaskRef,
        label: str,
        omissions: Omissions,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._client, self._task, self._label, self._clock = client, task, label, clock
        self._omissions = omissions
        self.probe = ProbeReader(folder / FOLDER, clock)
        self._watch = Watch(folder, spec, self.probe, clock, self._align)
        self._reported: list[Finding] | None = None
        self._stack_request = StackRequest(self.probe, clock)
        self._stacks_requested_at = self._stacks_sent_at = 0.0
        self._judged_at = float("-inf")
        self.refused_data: Callable[[], list[Finding]] = list
        """Further findings: data that the server does not accept."""

    def take_points(self, series: Mapping[str, Sequence[Point]], source: str) -> None:
        """Add points that the server has stored."""
        self._watch.losses.take(series, source)

    def request_stacks(self, requested_at: float | None) -> None:
        """Report the stacks of all ranks at the next step; `requested_at` is by the server's clock."""
        self._stacks_requested_at = requested_at or 0.0

    def step(self, now: float) -> None:
        """Check and report when due. Raises what the client raises."""
        if now - self._judged_at >= (STACKS_EVERY_S if self._watch.is_requesting_stacks else EVERY_S):
            self._judged_at = now
            self._report([*self._watch.judge(), *self._omissions.findings(), *self.refused_data()])
        if self._stacks_requested_at > self._stacks_sent_at:
            self._send_stacks()

    def finish(self, more: Sequence[Finding] = ()) -> None:
        """Report the final findings after the end, with `more` of other sources."""
        self._report([*self._watch.judge_end(), *self._omissions.findings(), *more, *self.refused_data()])

    @property
    def hang(self) -> str | None:
        """One sentence while the ranks hang, else None."""
        return self._watch.hang

    @property
    def desync(self) -> Finding | None:
        """Where ranks left their common path of collectives and ended for it; known at the end."""
        return self._watch.desync

    def _align(self, collectives: NodeCollectives) -> CollectivesVerdict | None:
        """Send this node's collectives; return the verdict over all nodes, None where the server cannot give one."""
        try:
            return self._client.collectives(self._task, collectives)
        except (ServerAway, RequestRefused) as error:
            log.info("attempt %s: its collectives were not compared: %s", self._label, error)
            return None

    def _report(self, findings: list[Finding]) -> None:
        """Send the findings if they changed, or if this worker has not sent any yet."""
        if findings == self._reported:
            return
        self._reported = findings
        try:
            _send_largest(
                EVIDENCE_CHARACTERS,
                lambda most: self._client.findings(self._task, _shortened(findings, most)),
            )
        except ServerAway:
            self._reported = None
            raise
        except RequestRefused as refusal:
            log.error("attempt %s: its findings were refused: %s", self._label, refusal)

    def _send_stacks(self) -> None:
        """Send the requested stacks; the ranks may take seconds, so the request and the answer are separate steps."""
        self.probe.look()
        frames = self._stack_request.answer(list(self.probe.latest().values()))
        if frames is None or self._stack_request.is_pending:
            return
        at = self._clock.wall()
        if ranks := self._stack_request.collectives:
            self._align(NodeCollectives(is_stalled=self.hang is not None, ranks=ranks))

        def send(most: int) -> None:
            ranks = {rank: [_frame(frame) for frame in stack[:most]] for rank, stack in frames.items()}
            self._client.stacks(self._task, Stacks(requested_at=self._stacks_requested_at, at=at, ranks=ranks))

        try:
            _send_largest(STACK_FRAMES, send)
        except RequestRefused as refusal:  # do not request them again
            log.error("attempt %s: its stacks were refused: %s", self._label, refusal)
        self._stacks_sent_at = self._stacks_requested_at
        self._stack_request.discard()


def _send_largest(sizes: Sequence[int], send: Callable[[int], None]) -> None:
    """Send with the largest size that is accepted. Raises what `send` raises."""
    for size in sizes[:-1]:
        with suppress(TooLarge):
            return send(size)
    return send(sizes[-1])


def _shortened(findings: Sequence[Finding], most: int) -> Findings:
    return Findings(findings=[finding.model_copy(update={"evidence": finding.evidence[:most]}) for finding in findings])


def _frame(frame: PythonFrame) -> StackFrame:
    return StackFrame(file=frame.file, line=frame.line, function=frame.function)

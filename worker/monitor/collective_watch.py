"""Have the collectives of this node's ranks compared with the other nodes', in a hang and after a failure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from domain.collective_records import CollectivesVerdict, NodeCollectives, RankCollectives
from domain.messages import Finding
from worker.monitor.collective_fetching import read_left_records
from worker.monitor.probe_reader import ProbeReader

log = logging.getLogger(__name__)
KIND = "collectives differ"
Align = Callable[[NodeCollectives], CollectivesVerdict | None]
"""Compares this node's collectives with those of the other nodes."""


class CollectivesWatch:
    """Remembers what was sent last, so that equal records are sent only until there is a verdict."""

    def __init__(self, folder: Path, probe: ProbeReader, align: Align) -> None:
        self._folder, self._probe, self._align = folder, probe, align
        self._sent: Sequence[RankCollectives] | None = None
        self._verdict: CollectivesVerdict | None = None
        self.end: Finding | None = None
        """Why ranks ended in a collective, if another one did not come to it."""

    def align(self, records: Sequence[RankCollectives]) -> CollectivesVerdict | None:
        """Return where the ranks of all nodes left their common path in a hang."""
        if records and (self._verdict is None or records is not self._sent):
            self._sent = records
            self._verdict = self._align(NodeCollectives(is_stalled=True, ranks=list(records)))
        return self._verdict

    def discard(self) -> None:
        """Withdraw the records: the ranks step again."""
        if self._sent is not None:
            self._sent, self._verdict = None, None
            self._align(NodeCollectives())

    def judge_end(self) -> list[Finding]:
        """Return a finding where ranks ended in a collective because another one did not come to it."""
        records = self._left_records()
        if not any(record.failure for record in records):
            return []
        verdict = self.align(records)
        by_rank = {record.rank: record for record in records}
        is_explained = (
            verdict is not None
            and verdict.kind == "left"
            and any(rank not in by_rank or by_rank[rank].failure for rank in verdict.ranks)
        )
        self.end = None if verdict is None or is_explained else _finding(verdict)
        return [self.end] if self.end else []

    def _left_records(self) -> list[RankCollectives]:
        statuses, recorders = list(self._probe.latest().values()), self._probe.recorders()
        try:
            return read_left_records(self._probe.folder, self._folder / "logs", statuses, recorders)
        except Exception:  # what a rank left may be anything; the attempt's end is reported all the same
            log.exception("the records of collectives that ranks left could not be read")
            return []


def _finding(verdict: CollectivesVerdict) -> Finding:
    return Finding(
        kind=KIND,
        evidence=verdict.sentence,
        meaning="The ranks did not call the same collectives in the same order, so some waited for a call that "
        "never came.",
        fix="Check the lines above: a collective under an if that not all ranks take, unequal numbers of batches, "
        "tensors whose size or type depends on the rank.",
    )

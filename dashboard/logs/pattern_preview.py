"""Preview a pattern of printed lines in the last lines of a run's stored logs, before anybody uses it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dashboard.logs.stored_logs import find_logs
from dashboard.service.service import Service
from domain.series.printed_pattern import PrintedPattern

TAIL_BYTES = 64 * 1024
MOST_SHOWN = 4


@dataclass(frozen=True)
class FittingLine:
    """A line and what is read in it; one without step and epoch is counted when all lines are read."""

    line: str
    step: int | None
    epoch: float | None
    values: Mapping[str, float]


@dataclass(frozen=True)
class PatternPreview:
    """The newest lines that fit, oldest first."""

    fitting: list[FittingLine]
    number: int
    """Number of fitting lines among the `lines` that were read."""
    lines: int


def preview(service: Service, run_id: str, text: str) -> PatternPreview:
    """Read the end of rank 0's logs, or of the last rank's where only that fits. Raises NoSuchRun, ValueError."""
    pattern, lines = PrintedPattern(text), 0
    for rank, texts in _tails(service, run_id):
        read = [(line, pattern.read(line, rank)) for line in texts]
        lines += len(read)
        fitting = [FittingLine(line, it.step, it.epoch, it.values) for line, it in read if it is not None]
        if fitting:
            return PatternPreview(fitting[-MOST_SHOWN:], len(fitting), lines)
    return PatternPreview([], 0, lines)


def _tails(service: Service, run_id: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the last lines of each log that may count: rank 0's, then the last rank's."""
    run = service.run(run_id)
    logs = find_logs(service.store, run_id, run.attempt)
    last = max((rank for rank, _ in logs if isinstance(rank, int)), default=0)
    for rank in dict.fromkeys((0, last)):
        for stream in ("out", "err"):
            if (log := logs.get((rank, stream))) is not None:
                start = max(0, log.size_bytes - TAIL_BYTES)
                data = service.files.read(log.file_id, start, TAIL_BYTES)
                texts = re.split(r"[\r\n]+", data.decode(errors="replace"))[int(start > 0) :]
                yield rank, [text for text in texts if text.strip()]

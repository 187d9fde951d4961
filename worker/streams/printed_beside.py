"""The step that a rank's other log tells: a line that names a rounded epoch alone stands where the bar beside it is."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from worker.node.regular_files import open_regular

STREAMS = {"out": "err", "err": "out"}
_STREAM = re.compile(r"out|err")
"""In a log's name: rank0.out of ours, stdout.log of torchrun."""
LAST_BYTES = 64 * 1024
NEAR = 3
"""Steps that a bar may have gone on since a line that names its step."""
_BAR = re.compile(rb"^\s*\d+%\|[^|\r\n]*\|\s*(\d+)/(\d+) \[", re.MULTILINE)
"""A bar without a title: of the training, or of a validation, which is shorter."""
_STEP = re.compile(rb"(?<![\w/.-])step=(\d+)(?![\w.])")


def step_beside(log: Path) -> int | None:
    """Return the step in the last lines of the other log of a rank; None where no bar counts there."""
    other = log.with_name(_STREAM.sub(lambda stream: STREAMS[stream[0]], log.name))
    with suppress(OSError), open_regular(other) as content:
        content.seek(max(0, content.seek(0, os.SEEK_END) - LAST_BYTES))
        return last_step(content.read(LAST_BYTES))
    return None


def last_step(text: bytes) -> int | None:
    """Return the step that the last bar of the training shows, or a line shortly before it; None without a bar."""
    bars = [(int(of), int(step)) for step, of in _BAR.findall(text.replace(b"\r", b"\n"))]
    if not bars:
        return None
    longest = max(of for of, _ in bars)
    at = next(step for of, step in reversed(bars) if of == longest)
    named = [int(step) for step in _STEP.findall(text)]
    return named[-1] if named and 0 <= at - named[-1] <= NEAR else at

"""The lines of JSON that a program prints: progress, and one last line of its result."""

from __future__ import annotations

import json
import time
from typing import Any

EVERY_S = 0.2


class ProgressReport:
    """Prints progress, at most every 0.2 seconds."""

    def __init__(self) -> None:
        self._printed_at = float("-inf")

    def progress(self, done_bytes: int, total_bytes: int, doing: str) -> None:
        """Print how much of the work is done, and what is being done."""
        now = time.monotonic()
        if now - self._printed_at >= EVERY_S:
            self._printed_at = now
            print_line({"progress": [done_bytes, total_bytes, doing]})


def print_line(document: dict[str, Any]) -> None:
    """Print one line at once."""
    print(json.dumps(document), flush=True)

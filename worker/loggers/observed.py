"""The runs of loggers that the probe sees as the script logs: their files are not read a second time."""

from __future__ import annotations

from pathlib import Path

from worker.node.run_files import LOGGERS
from worker.streams.json_lines import JsonLines


class ObservedRuns:
    """What the probe of each process noted, in `runs-PID.jsonl`, before a run's first value could reach the disk."""

    def __init__(self, attempt: Path) -> None:
        self._folder = attempt / LOGGERS
        self._files: dict[str, JsonLines] = {}
        self._noted: set[tuple[str, str]] = set()
        self._answers: dict[tuple[str, str], bool] = {}

    def has(self, logger: str, run: str) -> bool:
        """Whether the probe sees this run. Ask when the run has a value, not before: the answer is final."""
        key = (logger, run)
        if key not in self._answers:
            self._read()
            self._answers[key] = key in self._noted
        return self._answers[key]

    def has_any(self) -> bool:
        """Whether the probe has seen any logger."""
        if not self._noted:
            self._read()
        return bool(self._noted)

    def _read(self) -> None:
        for path in sorted(self._folder.glob("runs-*.jsonl")):
            for _, record in self._files.setdefault(path.name, JsonLines(path)).read():
                self._noted.add((str(record.get("logger")), str(record.get("run"))))

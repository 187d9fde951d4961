"""Limits how much one attempt sends from this node, and says what is left out."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from domain.messages import MAX_SERIES, Finding, PointBatch
from domain.text.json_values import parse_json, storable
from worker.node.regular_files import append, bytes_of
from worker.node.run_files import MAX_ENTRIES
from worker.streams.mirror import MAX_EVENT_FILES

KIND = "too many series"
NAMED_CHARACTERS = 200
MOST_NAMED = 10


class SeriesLimit:
    """The names that count, by the source of their points: the first ones, also after a restart of the worker."""

    def __init__(self, file: Path, most: int = MAX_SERIES) -> None:
        self._file, self._most = file, most
        self._names: dict[str, set[str]] = defaultdict(set)
        self._left_out: dict[str, str] = {}
        """Source -> the first name beyond the limit."""
        with suppress(OSError):
            for line in bytes_of(file).splitlines():
                self._remember(line)

    def keep(self, batch: PointBatch) -> PointBatch:
        """Return the batch without the points of names beyond the limit; its byte range stays."""
        names, fresh = self._names[batch.source], list[str]()
        for name in batch.series:
            if name not in names and len(names) < self._most:
                names.add(name)
                fresh.append(name)
        beyond = next((name for name in batch.series if name not in names), None)
        if beyond is not None and batch.source not in self._left_out:
            self._left_out[batch.source] = beyond
            fresh.append(beyond)
        self._save(batch.source, fresh)
        if beyond is None:
            return batch
        return batch.model_copy(
            update={"series": {name: points for name, points in batch.series.items() if name in names}}
        )

    def findings(self) -> list[Finding]:
        """Say that there are more names than are stored."""
        if not self._left_out:
            return []
        example = storable(next(iter(self._left_out.values())))[:NAMED_CHARACTERS]
        return [
            Finding(
                kind=KIND,
                evidence=f"More than {self._most:,} names of series were logged on one node. The first "
                f"{self._most:,} are stored; the others are left out, the first of them: {example}",
                meaning="The curves of the omitted names are missing here. All others are complete, and the "
                "event files on the node hold every name.",
                fix="Log fewer names: a name with a step, a sample or a time in it makes one series for each value. "
                "Give one name and pass the step, or log a histogram instead of one scalar per parameter.",
            )
        ]

    def _remember(self, line: bytes) -> None:
        """Take up what an earlier worker noted; a torn last line is left out."""
        with suppress(ValueError, TypeError):
            source, name = parse_json(line.decode())
            names = self._names[str(source)]
            if len(names) < self._most:
                names.add(str(name))
            else:
                self._left_out.setdefault(str(source), str(name))

    def _save(self, source: str, fresh: list[str]) -> None:
        if not fresh:
            return
        with suppress(OSError):  # a full disk: chosen again after a restart
            self._file.parent.mkdir(parents=True, exist_ok=True)
            append(self._file, "".join(json.dumps([source, name]) + "\n" for name in fresh))


def left_out_findings(event_files: int, holes: Sequence[str], too_large: Sequence[Path]) -> list[Finding]:
    """The findings on a number of event files beyond the limit, on stretches never written, and on folders that are
    not looked at as a whole."""
    findings = list[Finding]()
    if event_files:
        findings.append(
            Finding(
                kind="too many event files",
                evidence=f"{event_files:,} event files are neither read nor copied: they are newer than the first "
                f"{MAX_EVENT_FILES:,} of this run's folder.",
                meaning="The curves in them are missing here. The files are still on the node.",
                fix="Make one SummaryWriter per process and keep it: each one opened writes its own file.",
            )
        )
    if holes:
        findings.append(
            Finding(
                kind="hole in a file",
                evidence=" ".join(holes[:MOST_NAMED]),
                meaning="The copy here ends where the hole begins; records of event files after it are read. "
                "The whole file is still on the node.",
                fix="Look for what lengthened the file without writing to it: truncate, a write far past the end, "
                "or a full disk.",
            )
        )
    if too_large:
        findings.append(
            Finding(
                kind="too many files",
                evidence=" ".join(f"{folder} has more than {MAX_ENTRIES:,} files and folders." for folder in too_large),
                meaning="The others are ignored: checkpoints and curves among them stay on the node.",
                fix="Keep data outside the working directory, or give the script a folder of its own.",
            )
        )
    return findings

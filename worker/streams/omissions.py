"""What of an attempt's files did not become points, remembered on disk and told as findings."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel

from domain.messages import Finding, PointBatch
from worker.node.state_files import write_whole
from worker.streams.records import Gap

log = logging.getLogger(__name__)
NOTES_FILE = "worker/omissions.json"
SET_ASIDE_FILE = "worker/points-set-aside.jsonl"
MOST_NAMED = 10


class LeftOut(BaseModel):
    """What was left out of one generation of one event file."""

    stretches: int = 0
    size_bytes: int = 0
    first: int = 0
    """The byte at which the first stretch begins."""
    up_to: int = 0
    """The end of the last stretch: what is read again after a restart counts once."""
    unfinished_bytes: int = 0
    """At its end, never written whole."""

    def take(self, gap: Gap) -> bool:
        """True when it says anything new."""
        if gap.end <= self.up_to:
            return False
        if gap.why == "unfinished":
            self.unfinished_bytes = gap.end - gap.start
        else:
            self.first = self.first if self.stretches else gap.start
            self.stretches += gap.start > self.up_to or not self.stretches
            self.size_bytes += gap.end - max(gap.start, self.up_to)
        self.up_to = gap.end
        return True


class SetAside(BaseModel):
    """Points of one file that the server did not take."""

    points: int = 0
    up_to: int = 0
    why: str = ""


class _Notes(BaseModel):
    files: dict[str, LeftOut] = {}
    set_aside: dict[str, SetAside] = {}


class Omissions:
    """Of one attempt's part."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._notes = folder, _Notes()
        with suppress(OSError, ValueError):
            self._notes = _Notes.model_validate_json((folder / NOTES_FILE).read_bytes())

    def left_out(self, path: str, generation: int, gaps: Sequence[Gap]) -> None:
        """Remember what of an event file is no whole record; before what lies around it is sent."""
        if not gaps:
            return
        known = self._notes.files.setdefault(_name(path, generation), LeftOut())
        news = [known.take(gap) for gap in gaps]
        if any(news):
            log.warning("%s: %s", path, _told(known))
            self._keep()

    def set_aside(self, batch: PointBatch, why: str) -> None:
        """Keep a batch that the server does not take. Raises OSError where there is no room: then it waits."""
        known = self._notes.set_aside.setdefault(_name(batch.path, batch.generation), SetAside())
        if batch.end <= known.up_to:
            return  # kept before, and the server's offset was not moved yet
        target = self._folder / SET_ASIDE_FILE
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("a") as file:
            file.write(batch.model_dump_json() + "\n")
        known.points += sum(map(len, batch.series.values()))
        known.up_to, known.why = batch.end, why[:300]
        log.error("%s: points at byte %d are set aside: %s", batch.path, batch.start, why)
        self._keep()

    def findings(self) -> list[Finding]:
        """One for all event files that are damaged, one for all points that the server did not take."""
        return self._damage() + self._refusals()

    def _refusals(self) -> list[Finding]:
        if not self._notes.set_aside:
            return []
        told = [
            f"{name[-300:]}: {_count(each.points)} not taken by the server: {each.why}"
            for name, each in list(self._notes.set_aside.items())[:MOST_NAMED]
        ]
        return [
            Finding(
                kind="points refused",
                evidence=" ".join(told),
                meaning="They are missing from the curves; everything before and behind them is stored.",
                mend=f"They are kept on the node, a batch a line, in {self._folder / SET_ASIDE_FILE}. Report the "
                "sentence above; where it speaks of a mistake, the dashboard's log has the details.",
            )
        ]

    def _damage(self) -> list[Finding]:
        damaged = self._notes.files
        if not damaged:
            return []
        told = [f"{name[-300:]}: {_told(left)}" for name, left in list(damaged.items())[:MOST_NAMED]]
        if more := len(damaged) - len(told):
            told.append(f"And {more} more files.")
        return [
            Finding(
                kind="event file damaged",
                evidence=" ".join(told),
                meaning="Bytes whose checksums are wrong were never taken for values: what was logged there is "
                "missing from the curves. All other records of the file were read.",
                mend="A record at the very end is cut off when the writer is killed, and costs nothing else. "
                "Damage before it comes from a disk, a network file system or memory: look at the node's kernel "
                f"log. The file still lies on the node, below {self._folder}.",
            )
        ]

    def _keep(self) -> None:
        with suppress(OSError):  # a full disk: what is left out is told again while this worker lives
            write_whole(self._folder / NOTES_FILE, self._notes.model_dump_json())


def _count(points: int) -> str:
    return f"{points:,} points were" if points != 1 else "one point was"


def _name(path: str, generation: int) -> str:
    return f"{path} ({generation})" if generation else path


def _told(left: LeftOut) -> str:
    said = []
    if left.stretches:
        places = f"{left.stretches:,} places are" if left.stretches > 1 else "one place is"
        said.append(
            f"{places} damaged (from byte {left.first:,} on, {left.size_bytes:,} bytes in all) and stepped over"
        )
    if left.unfinished_bytes:
        said.append(f"its last {left.unfinished_bytes:,} bytes are no whole record")
    return "; ".join(said) + "."

"""A run that trained elsewhere, as an importer reads it, and what an import leaves out, with the reason."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from domain.imported_runs import ImportRequest
from domain.messages import Point
from domain.text.json_values import storable
from worker.loggers.wandb import NOT_FINITE
from worker.node.run_files import MAX_ENTRIES, walk_files

READ_BYTES = 1024 * 1024
MAX_NAME = 200
MEDIA = "_type"
"""Marks an image, a table or the like, whose numbers are not series."""
MAX_SERIES_NAME = 500
LATEST = 2.0**40
PointsBySeries = Mapping[str, Sequence[Point]]


class WriterPoints(dict[str, Sequence[Point]]):
    """Points by series of one writer of several: where a later one goes back, its points replace those before."""

    def __init__(self, writer: int, points: PointsBySeries) -> None:
        """`writer`: its number, in the order in which they began."""
        super().__init__(points)
        self.writer = writer


def writer_of(points: PointsBySeries) -> int:
    """Return the number of the points' writer, 0 for the only one."""
    return points.writer if isinstance(points, WriterPoints) else 0


@dataclass(frozen=True)
class PastRun:
    """One run and how to read its points."""

    name: str
    source: Path
    """The file or folder it is read from."""
    content: str
    """Identifies the source: the digest of its files, or of its rows."""
    started_at: float
    points: Callable[[], Iterator[PointsBySeries]]
    """Yields all points, always in the same order: an interrupted import resumes where it ended."""
    state: Literal["succeeded", "failed", "stopped"] = "stopped"
    message: str | None = None
    ended_at: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    """Its `config`, `tags` and `summary`, as loggers have them."""
    part: str = ""
    """Which run of the source, where that holds several."""

    def request(self, format_name: str, host: str, project: str) -> ImportRequest:
        """Describe it for the server."""
        described = {
            "name": storable(_one_line(self.name))[-MAX_NAME:] or format_name,
            "state": self.state,
            "message": self.message,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "settings": self.settings,
        }
        content = json.dumps([described, self.content], sort_keys=True, default=str)
        return ImportRequest.model_validate(
            described
            | {
                "format": format_name,
                "source": storable(f"{host}:{self.source.absolute()}" + (f"#{self.part}" if self.part else "")),
                "project": project,
                "digest": hashlib.sha256(content.encode(errors="replace")).hexdigest(),
            }
        )


def digest_of_files(files: Iterable[Path]) -> str:
    """The SHA-256 of the names and bytes of files."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode(errors="replace") + b"\0")
        with path.open("rb") as content:
            while block := content.read(READ_BYTES):
                digest.update(block)
    return digest.hexdigest()


def numbers(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield (name, value) of each number of a row; the names of nested ones are joined by a dot."""
    for name, value in row.items():
        if isinstance(value, Mapping) and MEDIA in value:
            continue
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) or (isinstance(value, str) and value in NOT_FINITE):
            with suppress(OverflowError):
                yield f"{prefix}{name}", float(value)


def is_moment(seconds: float) -> bool:
    """Whether it may be a time in seconds since the epoch: the server takes no other."""
    return 0 <= seconds < LATEST


def can_be_stored(series: str, point: Point) -> bool:
    """Whether the server takes a point, as it takes those of live runs."""
    step, _, wall = point
    return 0 < len(series) <= MAX_SERIES_NAME and -(2**63) <= step < 2**63 and math.isfinite(wall)


def moment(value: Any, per_second: int = 1) -> float | None:
    """Return a time as loggers write it, a number or ISO 8601, in seconds since the epoch; None if it is none."""
    try:
        if isinstance(value, str) and not value.strip().isdecimal():
            value = datetime.fromisoformat(value)
        seconds = value.timestamp() if isinstance(value, datetime) else float(value) / per_second
    except (ValueError, TypeError, OverflowError):
        return None
    return seconds if is_moment(seconds) else None


def name_below(root: Path, folder: Path) -> str:
    """The path of a folder below the imported one; the folder's own name if that is imported."""
    inside = folder.resolve().relative_to(root.resolve())
    return str(inside) if inside.parts else folder.resolve().name


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text).strip()


# What an import leaves out: each source is told once with the reason, and holds up no other.

T = TypeVar("T")
MOST_CHARACTERS = 300


class LeftOut:
    """The sources that are not, or only partly, imported, and why."""

    def __init__(self) -> None:
        self._told: dict[Path, list[str]] = {}

    def __len__(self) -> int:
        return len(self._told)

    def __contains__(self, source: Path) -> bool:
        return source in self._told

    def add(self, source: Path, reason: str) -> None:
        """Note in a sentence what of a source is left out."""
        sentences = self._told.setdefault(source, [])
        if reason not in sentences:
            sentences.append(reason)

    def walk(self, root: Path, matches: Callable[[str], bool]) -> list[Path]:
        """Return the files below a folder whose name matches; what is not looked at is left out."""
        reason = f"It has more than {MAX_ENTRIES:,} files and folders; the others were not searched."
        return [Path(entry.path) for entry in walk_files(root, matches, cut=lambda: self.add(root, reason))]

    def attempt(self, source: Path, read: Callable[[], T]) -> Iterator[T]:
        """Yield what `read` returns; where it raises, its source is left out."""
        try:
            result = read()
        except Exception as error:  # whatever a damaged file makes a reader do
            self.add(source, f"It cannot be read ({reason_of(error)}).")
            return
        yield result

    def guarded(self, source: Path, items: Iterator[T]) -> Iterator[T]:
        """Yield the items of a source; where reading them raises, the rest is left out."""
        try:
            yield from items
        except Exception as error:  # whatever a damaged file makes a reader do
            self.add(source, f"It cannot be read to its end ({reason_of(error)}).")

    def lines(self) -> list[str]:
        """Return a line for each source."""
        return [f"{source}: {' '.join(sentences)}" for source, sentences in self._told.items()]


def reason_of(error: Exception) -> str:
    """Return an exception in one line."""
    text = " ".join(str(error).split())[:MOST_CHARACTERS]
    return text or type(error).__name__

"""What a rank prints as point sources: rank 0's stdout and stderr, or the last rank's where only that prints."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from domain.clock import SYSTEM_CLOCK, Clock
from domain.masking.values import ValueMask
from domain.messages import Finding, Point, PointBatch
from domain.series.printed_pattern import NOT_READ, SUCH_AS, PrintedPattern
from worker.node.state_files import read_object, write_whole
from worker.streams.mirror import MirroredFile
from worker.streams.point_uploader import BATCH_BYTES, OffsetOf
from worker.streams.points import size_if_same
from worker.streams.printed import PrintedTail
from worker.streams.printed_table import PrintedTables
from worker.streams.printed_unread import UnreadLines

log = logging.getLogger(__name__)


class PrintedSource:
    """One generation of one log. Bytes without points are sent with the next points behind them."""

    def __init__(
        self,
        file: MirroredFile,
        offset: int,
        name: Callable[[Series, str], Series],
        tables: PrintedTables,
        pattern: PrintedPattern | None = None,
        mask: ValueMask | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`tables`: those that the same rank has printed; `pattern`: how a person reads its lines; `mask`: hides the
        attempt's secrets in them."""
        self.path, self.generation = file.path, file.generation
        self._file, self._name = file, name
        self._tail = PrintedTail(file.source, offset, clock, tables, _rank_of(file), pattern, mask)
        self._sent_up_to, self._read_up_to = offset, -1

    @property
    def unread(self) -> UnreadLines:
        """The lines with values that no rule reads."""
        return self._tail.unread

    @property
    def size_bytes(self) -> int:
        """Size of the file now; 0 if it is missing or was replaced."""
        return size_if_same(self._file) or 0

    def finish(self) -> None:
        """Read a last line without its end: the writer has ended."""
        if not self._tail.final:
            self._tail.final, self._read_up_to = True, -1

    def read(self, max_bytes: int) -> PointBatch | None:
        """Read on to the next lines with points, about `max_bytes` at a time; None if there are none."""
        size = size_if_same(self._file)
        if size is not None and self._tail.final:  # what a stranger goes on writing is not the run's
            size = min(size, self._file.size_bytes)
        while size is not None and self._tail.offset < size > self._read_up_to:
            lines = self._tail.read(max_bytes)
            if lines.end == lines.start and max_bytes < BATCH_BYTES:  # a line may be longer
                lines = self._tail.read(BATCH_BYTES)
            if lines.notice:
                log.warning("%s", lines.notice)
            if lines.end == lines.start:
                self._read_up_to = size
            if lines.series:
                return self._batch(lines.end, lines.series)
        return None

    def rewind(self, offset: int) -> None:
        """Continue reading at `offset`."""
        if offset != self._tail.offset:
            self._tail.offset, self._read_up_to = offset, -1
        self._sent_up_to = offset

    def _batch(self, end: int, series: Series) -> PointBatch:
        return PointBatch(
            path=self.path, generation=self.generation, start=self._sent_up_to, end=end, source="printed",
            series=self._name(series, self.path),
        )  # fmt: skip


STREAMS = {"out": "stdout", "err": "stderr"}
QUIET_S = 10.0
"""Time that the last rank has printed values before it is believed that rank 0 prints none."""
MIN_UNREAD = 5
"""Lines with a loss or the like, of any words, before a finding says that nothing is read."""
NOT_READ_MEANS = "These values have no curve: such lines do not give a step or epoch, or a value's name."
NOT_READ_FIX = (
    "Name the values in a pattern of these lines (--printed-pattern), or print the step with them, such as step 10: "
    "loss=2.31 (the document LOGGERS lists the formats), or log with torch.utils.tensorboard.SummaryWriter."
)
_LOG = re.compile(r"logs/rank(?P<rank>\d+)\.(?P<stream>out|err)")
Series = dict[str, list[Point]]


class PrintedLogs:
    """The point sources among the logs of a mirror."""

    def __init__(
        self,
        files: Callable[[], Sequence[MirroredFile]],
        offset_of: OffsetOf,
        owners_file: Path,
        clock: Clock = SYSTEM_CLOCK,
        mask: ValueMask | None = None,
    ) -> None:
        self._clock, self._mask = clock, mask
        self._tables: dict[int, PrintedTables] = {}
        self._scouts: dict[str, PrintedTail] = {}
        """Read what the last rank prints, without points, while rank 0 may still print some."""
        self._last_printed_at: float | None = None
        self._files, self._offset_of, self._owners_file = files, offset_of, owners_file
        self._sources: dict[tuple[str, int], PrintedSource] = {}
        self._owners: dict[str, str] | None = None
        self._pattern: PrintedPattern | None = None
        self._pattern_text: str | None = None

    def use(self, pattern: str | None) -> None:
        """Read by a person's pattern first: each log from behind its last points, or from its start."""
        if pattern != self._pattern_text:
            self._pattern_text = pattern
            self._pattern = None if pattern is None else PrintedPattern(pattern)
            self._sources.clear()
            self._scouts.clear()

    def sources(self, final: bool) -> Iterator[PrintedSource]:
        """Yield the source of each stream that counts; `final`: it has ended. Raises what `offset_of` raises."""
        for file in self._counting(final):
            key = (file.path, file.generation)
            if key not in self._sources:
                tables = self._tables.setdefault(_rank_of(file), PrintedTables())
                self._sources[key] = PrintedSource(
                    file, self._offset_of(*key), self._named, tables, self._pattern, self._mask, self._clock
                )
            if final:
                self._sources[key].finish()
            yield self._sources[key]

    def findings(self) -> list[Finding]:
        """Say that lines with values were printed that could not be read, or only in part."""
        unread = [source.unread for source in self._sources.values()]
        measured = 0 if self._known_owners() else sum(lines.measured for lines in unread)
        number = max(sum(lines.repeated for lines in unread), measured if measured >= MIN_UNREAD else 0)
        if not number:
            return []
        by_use = sorted(unread, key=lambda lines: not lines.repeated)
        example = next((lines.example for lines in by_use if lines.example), "")
        evidence = f"{number} printed lines hold values, {SUCH_AS}{example}"
        return [Finding(kind=NOT_READ, evidence=evidence, meaning=NOT_READ_MEANS, fix=NOT_READ_FIX)]

    def _counting(self, final: bool) -> Iterator[MirroredFile]:
        """Yield rank 0's logs, then those of the node's last rank if only that prints values."""
        logs = [file for file in self._files() if _LOG.fullmatch(file.path) and size_if_same(file) is not None]
        logs.sort(key=lambda file: (_rank_of(file), file.path.endswith(".err")))
        first = [file for file in logs if _rank_of(file) == 0]
        yield from first
        last = [file for file in logs if _rank_of(file) == _rank_of(logs[-1]) != 0]
        if first and self._prints_alone(last, final):
            yield from last

    def _prints_alone(self, last: Sequence[MirroredFile], final: bool) -> bool:
        """Whether the last rank's values count: for a while, or to the end, rank 0 has printed none beside them."""
        if not last or (owners := set(self._known_owners().values())):
            return bool(last and owners & {file.path for file in last})
        for file in [] if final or self._last_printed_at else last:
            scout = self._scouts.setdefault(
                file.path, PrintedTail(file.source, rank=_rank_of(file), pattern=self._pattern, mask=self._mask)
            )
            if scout.read().series:
                self._last_printed_at = self._clock.now()
        since = self._last_printed_at
        return final or (since is not None and self._clock.now() - since >= QUIET_S)

    def _known_owners(self) -> dict[str, str]:
        if self._owners is None:
            owners = read_object(self._owners_file)
            self._owners = {str(tag): str(owner) for tag, owner in owners.items()}
        return self._owners

    def _named(self, series: Series, path: str) -> Series:
        """Name the series: a name belongs to the stream that had it first, so a bar's loss and a line's stay apart."""
        owners = self._known_owners()
        new_owners = {tag: path for tag in series if tag not in owners}
        if new_owners:
            owners |= new_owners
            with suppress(OSError):  # a full disk: decided again after a restart
                write_whole(self._owners_file, json.dumps(owners))
        stream = STREAMS[path.rpartition(".")[2]]
        return {tag if owners[tag] == path else f"{stream}/{tag}": points for tag, points in series.items()}


def _rank_of(file: MirroredFile) -> int:
    log = _LOG.fullmatch(file.path)
    return int(log["rank"]) if log else 0

"""Read printed tables: a header row names the columns of the rows below it, as YOLO and fastai print them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from domain.series.printed_pattern import NUMBER, is_fraction, number, scaled
from worker.streams.printed_line import PrintedLine, TrainingPosition
from worker.streams.printed_values import is_measured, tag_of

MAX_COLUMNS = 40
_BAR = re.compile(r":?\s*(?P<percent>\d+)%\s?(?:\|.*|[━─╸╺].*)?$")
_NAME = re.compile(r"[A-Za-z][\w@.:/()%+\[\]-]*(?: [A-Za-z][\w()]*)?")
_CELL = re.compile(rf"(?P<value>{NUMBER})(?P<unit>[kKMGT](?:i?B)?|%|s)?")
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):(\d\d)")
_POSITION = re.compile(r"(\d+(?:\.\d+)?)(?:/(\d+))?")
_EPOCHS, _CLASSES = ("epoch", "epochs", "ep"), ("class", "classes")
_STEPS = ("global_step", "step", "iter", "iteration", "it", "batch", "update")
_WHOLE = ("all", "mean", "average", "avg", "total")
"""The row of a table of classes that holds all of them."""
_COUNTS = {"labels", "images", "instances", "targets", "img", "imgs", "objects", "no"}
_SHORT = {"p": "precision", "r": "recall"}
_DETECTION = re.compile(r"map|box|obj|cls|dfl|gpu_mem")


class PrintedTables:
    """The header rows seen so far, by their number of columns and kind; shared by a rank's stdout and stderr."""

    def __init__(self) -> None:
        self._columns: dict[tuple[int, bool], list[str]] = {}
        """The kind: whether rows begin with a position rather than with a class."""
        self._epoch: int | None = None
        self._epoch_headers = 0

    def __bool__(self) -> bool:
        return bool(self._columns)

    def read(self, text: str) -> PrintedLine | None:
        """Parse a cleaned line: note a header, return the values of a row; None for all else."""
        bar = _BAR.search(text)
        cells = _cells(text[: bar.start()] if bar else text)
        if not 2 <= len(cells) <= MAX_COLUMNS:
            return None
        if _is_header(cells):
            self._take_header(cells)
            return None
        is_finished = bar is None or bar["percent"] == "100"
        columns = self._columns.get((len(cells), _POSITION.fullmatch(cells[0]) is not None))
        return self._row(columns, cells, bar is not None) if columns and is_finished else None

    def _take_header(self, cells: Sequence[str]) -> None:
        columns = _names(cells)
        self._columns[len(cells), columns[0] not in _CLASSES] = columns
        self._epoch_headers += columns[0] in _EPOCHS

    def _row(self, columns: Sequence[str], cells: Sequence[str], is_bar: bool) -> PrintedLine | None:
        texts = dict(zip(columns, cells, strict=True))
        phase = "val" if columns[0] in _CLASSES else None
        position = self._position_of_classes(cells[0]) if phase else _position(texts)
        keys = {columns[0], *_EPOCHS, *_STEPS}
        values = {name: _value(text) for name, text in texts.items() if name not in keys}
        if position is None or any(value is None for value in values.values()):
            return None
        if position.epoch is not None and not phase:
            self._epoch = int(position.epoch)
        named = {tag_of(name, phase): value for name, value in values.items() if name not in _COUNTS}
        measured = {tag: value for tag, value in named.items() if tag is not None and value is not None}
        return PrintedLine(position, measured, f"table:{phase or ''}", phase, is_bar=is_bar and not phase)

    def _position_of_classes(self, name: str) -> TrainingPosition | None:
        """Return the position of a validation: the epoch of the row above, or that of the header above."""
        epoch = self._epoch_headers if self._epoch is None else max(self._epoch, self._epoch_headers)
        return TrainingPosition(epoch=epoch) if name.lower() in _WHOLE and epoch else None


def _cells(text: str) -> list[str]:
    body = text.strip()
    for mark in "|│┃\t,":
        if mark in body:
            return [cell.strip() for cell in body.strip(mark).split(mark)]
    return body.split()


def _is_header(cells: Sequence[str]) -> bool:
    first = cells[0].lower()
    if first not in (*_EPOCHS, *_STEPS, *_CLASSES) or not all(map(_NAME.fullmatch, cells)):
        return False
    return any(is_measured(name) or _DETECTION.match(name) for name in map(str.lower, cells[1:]))


def _names(cells: Sequence[str]) -> list[str]:
    """Return the columns' names in lower case: `Mask(P  R)` are `mask_precision` and `mask_recall`."""
    names, group = [], ""
    for cell in map(str.lower, cells):
        head, opens, inner = cell.partition("(")
        if opens and ")" not in inner:
            group, cell = ("" if head == "box" else f"{head}_"), inner
        name = cell.rstrip(")") if "(" not in cell else cell
        names.append(group + _SHORT.get(name, name))
        group = "" if cell.endswith(")") else group
    return names


def _position(texts: dict[str, str]) -> TrainingPosition | None:
    epoch, step = (
        next((_POSITION.fullmatch(texts[name]) for name in names if name in texts), None) for names in (_EPOCHS, _STEPS)
    )
    if (epoch is None and step is None) or (step is not None and not step[1].isdigit()):
        return None
    return TrainingPosition(
        int(step[1]) if step else None,
        int(step[2]) if step and step[2] else None,
        float(epoch[1]) if epoch else None,
        int(epoch[2]) if epoch and epoch[2] else None,
        epoch_is_fraction=epoch is not None and is_fraction(epoch[1]),
    )


def _value(text: str) -> float | None:
    """Return a cell's number, a time in seconds; None if it is none."""
    if clock := _CLOCK.fullmatch(text):
        return int(clock[1] or 0) * 3600.0 + int(clock[2]) * 60 + int(clock[3])
    if (cell := _CELL.fullmatch(text)) is None:
        return None
    unit = (cell["unit"] or "").rstrip("B").rstrip("i")
    return scaled(cell["value"] + unit) if unit in tuple("kMG") else number(cell["value"])

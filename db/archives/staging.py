"""Points of a run on its way into the store: written in small transactions, under series that nobody sees yet.

Other writers get through between two of them. A series without an attempt is in no list and no chart; the transaction
that stores the run gives it its attempt. What a killed import leaves is deleted when nothing has come for a while.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Self

from sqlalchemy import and_, delete, select, update
from sqlalchemy.sql import ColumnElement

from db.engine import Store
from db.metrics import points
from db.models import Series, new_id
from domain.messages import Point

log = logging.getLogger("rankzero")
PIECE_POINTS = 4096
"""Of one transaction: it takes about ten milliseconds."""
PAUSE_S = 0.005
"""Pause between two transactions, in which a waiting writer gets the store: its lock keeps no order."""
ABANDONED_AFTER_S = 900.0
_STAGED = Series.fence.is_(None)


class StagedSeries(NamedTuple):
    """A series whose points are stored, without an attempt."""

    id: int
    points: int


class Staging:
    """The series of one import; those that no attempt has got at its end are deleted."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock, self._owner = store, clock, new_id()

    def __enter__(self) -> Self:
        """Return it; nothing is stored yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Delete what a failed import has stored."""
        if kind is None:
            return
        try:
            self._discard()
        except Exception:  # the import's own failure is the one to report
            log.warning("an import that failed left points; they are deleted later", exc_info=True)

    def add(self, chunks: Iterable[bytes]) -> StagedSeries:
        """Store the packed points of one series; raises what `chunks` raises."""
        with self._store.write(self._scope) as session:
            session.add(series := _placeholder(self._owner, self._clock()))
        stored = 0
        for piece in _pieces(chunks):
            with self._store.write(self._scope) as session:
                points.append(session, {series.id: (stored, piece)})
                session.execute(update(Series).where(self._own).values(last_wall=self._clock()))
            stored += len(piece)
            time.sleep(PAUSE_S)
        return StagedSeries(series.id, stored)

    def _discard(self) -> None:
        with self._store.read() as session:
            ids = session.scalars(select(Series.id).where(self._own)).all()
        for series_id in ids:
            _delete(self._store, series_id, self._scope)

    @property
    def _scope(self) -> str:
        return f"import {self._owner}"

    @property
    def _own(self) -> ColumnElement[bool]:
        return and_(_STAGED, Series.tag == self._owner)


def delete_abandoned(store: Store, now: float) -> bool:
    """Delete one series that a killed import left; return whether there was one."""
    left = select(Series.id).where(_STAGED, Series.last_wall < now - ABANDONED_AFTER_S).limit(1)
    with store.read() as session:
        series_id = session.scalar(left)
    if series_id is not None:
        _delete(store, series_id, f"series {series_id}")
    return series_id is not None


def _delete(store: Store, series_id: int, scope: str) -> None:
    with store.write(scope) as session:
        session.execute(delete(Series).where(Series.id == series_id, _STAGED))


def _placeholder(owner: str, now: float) -> Series:
    """A row whose `tag` says which import it is of and whose `last_wall` when its last piece came."""
    return Series(
        fence=None, node_rank=-1, source="staged", tag=owner, count=0, first_step=0, last_step=0, first_wall=now,
        last_wall=now, last_value=0.0, finite_sum=0.0, finite_count=0,
    )  # fmt: skip


def _pieces(chunks: Iterable[bytes]) -> Iterator[list[Point]]:
    """Yield the points of the packed chunks, so many at a time as one transaction takes."""
    piece: list[Point] = []
    for chunk in chunks:
        piece += points.unpack(chunk)
        if len(piece) >= PIECE_POINTS:
            yield piece
            piece = []
    if piece:
        yield piece

"""A store in which something else happens just before a chosen transaction: two writers, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from sqlalchemy.orm import Session

from db.engine import Store

Begin = Callable[..., AbstractContextManager[Session]]


class Interruption:
    """Acts before the transaction of a number, counted from 0, that others begin; at most once."""

    def __init__(self, number: int, act: Callable[[], None]) -> None:
        self._left, self._act = number, act
        self._is_within = False
        self.has_acted = False

    def wrap(self, begin: Begin) -> Begin:
        """Count the transactions that begin so. One within another is none: nobody writes in between."""

        @contextmanager
        def begun(*scopes: str) -> Iterator[Session]:
            if self._is_within:
                with begin(*scopes) as session:
                    yield session
                return
            self._is_within = True
            try:
                self._turn()
                with begin(*scopes) as session:
                    yield session
            finally:
                self._is_within = False

        return begun

    def _turn(self) -> None:
        if self._left == 0:
            self.has_acted = True
            self._act()
        self._left -= 1


@contextmanager
def interrupted(store: Store, number: int, act: Callable[[], None]) -> Iterator[Interruption]:
    """Act before the writing transaction of this number of the block: all that it read before may be over."""
    interruption = Interruption(number, act)
    store.write = interruption.wrap(store.write)  # type: ignore[method-assign]
    try:
        yield interruption
    finally:
        del store.write

"""The base class of all tables, how Python's types are stored, and what the store knows of itself."""

from __future__ import annotations

import json
import math
import secrets
import string
import struct
from typing import Any

from sqlalchemy import JSON, Float, LargeBinary, String
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator


class ExactFloat(TypeDecorator[float]):
    """A double as its eight bytes: SQLite would store NaN as NULL and lose it."""

    impl = LargeBinary(8)
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> bytes | None:
        """Pack for the store."""
        return None if value is None else struct.pack("<d", value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> float | None:
        """Unpack from the store."""
        return None if value is None else float(struct.unpack("<d", value)[0])


class Base(DeclarativeBase):
    """All tables; times are seconds since the epoch by the server's clock."""

    type_annotation_map = {  # noqa: RUF012
        dict[str, Any]: JSON(none_as_null=True),
        list[Any]: JSON(none_as_null=True),
        float: Float(53),
    }


def new_id() -> str:
    """Return a random id for a row that people name by it: a run, a study, an alert."""
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(10))


# JSON that every store accepts: NaN and infinities are written as strings, as in the API.


def dump_json(value: Any) -> str:
    """Serialize to standard JSON; PostgreSQL rejects Python's NaN and Infinity."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_in_words(value), allow_nan=False)


def _in_words(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_words(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_in_words(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


# What the store knows of itself: its identity, and the attempts that were deleted from it.


class StoreIdentity(Base):
    """The identity of this store for its workers: the newest row counts.

    A restored copy gets another identity, so that no worker takes it for the store it was copied from."""

    __tablename__ = "store_identities"

    id: Mapped[int] = mapped_column(primary_key=True)
    identity: Mapped[str] = mapped_column(String(16))
    origin: Mapped[str] = mapped_column(String(16))
    """made: the first identity; copied: written into a backup; restored: workers knew more than the store."""
    began_at: Mapped[float]


class DeletedAttempt(Base):
    """An attempt that was deleted here: its worker may end its remaining processes.

    One that is neither here nor among the attempts is unknown: an older backup was restored."""

    __tablename__ = "deleted_attempts"

    fence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    uid: Mapped[str | None] = mapped_column(String(16))

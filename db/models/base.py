"""The base class of all tables, and how Python's types are stored."""

from __future__ import annotations

import secrets
import string
import struct
from typing import Any

from sqlalchemy import JSON, Float, LargeBinary
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase
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

"""Compile each SQL statement once in a process, not once for each store: else a third of a small test's CPU."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache

_compiled: LRUCache[Any, Any] = LRUCache(10_000)
_connect = Engine.__init__
SAYS_HOW_TO_COMPILE = (
    "paramstyle",
    "default_schema_name",
    "server_version_info",
    "_json_serializer",
    "_json_deserializer",
)


def _share(engine: Engine, *arguments: Any, **named: Any) -> None:
    _connect(engine, *arguments, **named)
    engine._compiled_cache = _compiled


def _compile_alike(one: DefaultDialect, other: object) -> bool:
    """Whether the statements compiled for one are right for the other: both talk to the same kind of database."""
    same = (getattr(one, name, None) == getattr(other, name, None) for name in SAYS_HOW_TO_COMPILE)
    return type(one) is type(other) and all(same)


# The keys of compiled statements begin with the dialect, of which each engine has its own.
Engine.__init__ = _share  # type: ignore[method-assign]
DefaultDialect.__eq__ = _compile_alike  # type: ignore[method-assign]
DefaultDialect.__hash__ = lambda dialect: hash(type(dialect))  # type: ignore[method-assign]

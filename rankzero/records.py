"""An object of the dashboard in a script: its fields are attributes, as they were when it was read last."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from rankzero.connection import Connection


class Record(ABC):
    """A run or sweep; its fields are those of the API (`/api/docs`)."""

    def __init__(self, connection: Connection, fields: Mapping[str, Any]) -> None:
        self._connection, self._fields = connection, dict(fields)

    def __getattr__(self, name: str) -> Any:
        """Return a field of the API. Raises AttributeError."""
        if name.startswith("_") or name not in self._fields:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}; it has {', '.join(self._fields)}.")
        return self._fields[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._fields})

    @property
    def id(self) -> str:
        """Its id, which never changes."""
        return str(self._fields["id"])

    @property
    def state(self) -> str:
        """Its state when it was read."""
        return str(self._fields["state"])

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, as the API has them."""
        return dict(self._fields)

    def refresh(self) -> Self:
        """Read it again. Raises RankzeroError."""
        self._fields = dict(self._connection.get(self._path()))
        return self

    @abstractmethod
    def _path(self, *segments: str) -> str:
        """Return the API's path of it, or of a part of it."""

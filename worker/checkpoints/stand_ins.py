"""Stand-ins for the classes and functions a checkpoint names: nothing is imported or called, and all is saved again."""

from __future__ import annotations

import copyreg
import pickle
import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

_OWNERS: dict[int, StandIn] = {}
"""The stand-in of each dictionary and list that holds the content of one, by its id."""


class Kind(type):
    """A class or function that is stood in for."""

    path: str
    """Its module and name."""
    content_type: type | None
    """What torch's loader fills, where instances are dictionaries or lists: it fills no others."""

    def __call__(cls, *arguments: Any) -> Any:
        """Result of a call; a pickle that makes an instance without one goes by `__new__` alone."""
        value: Any = cls.__new__(cls, *arguments)  # type: ignore[arg-type]
        _OWNERS.get(id(value), value).is_called = True
        return value


class StandIn(metaclass=Kind):
    """Instance of a class, or result of a function, that only the training's own Python has."""

    arguments: tuple[Any, ...]
    is_called: bool
    state: Any
    content: Any

    def __new__(cls, *arguments: Any) -> Any:
        """Keep the arguments; return the dictionary or list to be filled, where there is one."""
        instance = super().__new__(cls)
        content = cls.content_type() if cls.content_type else None
        instance.__dict__ = {"arguments": arguments, "is_called": False, "state": None, "content": content}
        if content is None:
            return instance
        _OWNERS[id(content)] = instance
        return content

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        make = (type(self), self.arguments)
        if not self.is_called:
            make = (copyreg.__newobj__, (type(self), *self.arguments))  # type: ignore[attr-defined]
        if isinstance(self.content, dict):
            return *make, vars(self.content) or None, None, iter(self.content.items())
        return *make, self.state, iter(self.content) if self.content is not None else None


def stand_in_for(path: str) -> Kind:
    """A class for a module's class or function."""
    module, _, name = path.rpartition(".")
    return Kind(name, (StandIn,), {"__module__": module, "path": path, "content_type": None})


def add_missing(kinds: list[Kind], message: str) -> bool:
    """Add or change the stand-in that torch's loader complains about; False where it complains of something else."""
    if unknown := re.search(r"GLOBAL (\S+) was not an allowed global", message):
        path = unknown[1] if "." in unknown[1] else f"builtins.{unknown[1]}"
        kinds.append(stand_in_for(path))
        return not any(kind.path == path for kind in kinds[:-1])
    if filled := re.search(r"Can only (SETITEM|append|extend).* but got <class '(.+)'>", message):
        for kind in kinds:
            if kind.path == filled[2] and kind.content_type is None:
                kind.content_type = OrderedDict if filled[1] == "SETITEM" else list
                return True
    return False


def globals_for(kinds: Iterable[Kind]) -> list[Any]:
    """Stand-ins as `torch.serialization.safe_globals` takes them."""
    return [(kind, kind.path) for kind in kinds]


class Pickler(pickle._Pickler):
    """Write a stand-in under the name of what it stands for; torch.save takes this module as its `pickle_module`."""

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        """Write an object."""
        super().save(_OWNERS.get(id(obj), obj), save_persistent_id)  # type: ignore[misc]

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """Write the name of a class or function."""
        if not isinstance(obj, Kind):
            super().save_global(obj, name)  # type: ignore[misc]
            return
        module, _, name = obj.path.rpartition(".")
        self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())  # type: ignore[attr-defined]
        self.memoize(obj)  # type: ignore[attr-defined]

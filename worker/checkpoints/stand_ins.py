"""Stand-ins for a checkpoint's classes and functions, which are neither imported nor called but saved again."""

from __future__ import annotations

import copyreg
import pickle
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._tensor import _rebuild_from_type_v2
from torch._weights_only_unpickler import _get_allowed_globals

_OWNERS: dict[int, StandIn] = {}
"""Stand-ins of classes derived from dict or list, by the id of the plain dictionary or list with their content."""


class StandInType(type):
    """The type of stand-ins for one class or function."""

    path: str
    """The module and name of what it replaces."""
    content_type: type | None
    """OrderedDict or list for a class derived from dict or list, because torch's loader fills no others."""

    def __call__(cls, *arguments: Any) -> Any:
        """Note the call: a pickle that creates an instance without one uses `__new__` alone."""
        value: Any = cls.__new__(cls, *arguments)  # type: ignore[arg-type]
        _OWNERS.get(id(value), value).is_called = True
        return value


class StandIn(metaclass=StandInType):
    """An object that only the training's own Python can create: an instance, or a function's result."""

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


def stand_in_for(path: str) -> StandInType:
    """A stand-in for the class or function `path`, such as `argparse.Namespace`."""
    module, _, name = path.rpartition(".")
    return StandInType(name, (StandIn,), {"__module__": module, "path": path, "content_type": None})


def add_missing(kinds: list[StandInType], message: str) -> bool:
    """Add or change the stand-in that the loader's error message asks for; False if it asks for none."""
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


_REBUILD = "torch._tensor._rebuild_from_type_v2"


def rebuild_tensor(function: Any, tensor_class: type, arguments: tuple[Any, ...], state: Any) -> Any:
    """Rebuild a tensor as torch does; one of a class that only the training has becomes a stand-in."""
    rebuild: Any = stand_in_for(_REBUILD) if isinstance(tensor_class, StandInType) else _rebuild_from_type_v2
    return rebuild(function, tensor_class, arguments, state)


@contextmanager
def allowed_globals(kinds: Iterable[StandInType]) -> Iterator[None]:
    """Let torch's weights-only loader use the stand-ins."""
    with torch.serialization.safe_globals([(kind, kind.path) for kind in kinds]):
        _get_allowed_globals()[_REBUILD] = rebuild_tensor  # torch's own needs the class itself
        yield


class Pickler(pickle._Pickler):
    """Writes each stand-in under the name of what it replaces; torch.save uses this module as its `pickle_module`."""

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        """Write an object."""
        super().save(_OWNERS.get(id(obj), obj), save_persistent_id)  # type: ignore[misc]

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """Write the name of a class or function."""
        if not isinstance(obj, StandInType):
            super().save_global(obj, name)  # type: ignore[misc]
            return
        module, _, name = obj.path.rpartition(".")
        self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())  # type: ignore[attr-defined]
        self.memoize(obj)  # type: ignore[attr-defined]

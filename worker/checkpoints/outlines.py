"""Reads the outline of a pickle: its dictionaries and lists, and objects by their class; nothing of it runs."""

from __future__ import annotations

import pickletools  # nosec B403: lists operations, executes none
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO

from domain.checkpoints.contents import Thing

LONGEST_BYTES = 32 * 1024 * 1024
"""Largest part of a file that is read for its outline."""


def outline_of(file: BinaryIO, give_up_at: float = float("inf")) -> object:
    """The outline of the pickle at the file's position.

    Raises ValueError if it is damaged, or not read when the thread's processor time is `give_up_at`."""
    return _Machine().run(file, give_up_at)


class _Global(str):
    """Module and name of a class or function, which is never looked up."""

    __slots__ = ()


class _Machine:
    """The stack and the memo of a pickle's operations, with outlines in place of objects."""

    def __init__(self) -> None:
        self._stack: list[object] = []
        self._marks: list[int] = []
        self._memo: dict[object, object] = {}

    def run(self, file: BinaryIO, give_up_at: float) -> object:
        """Follow the operations of a pickle without executing one; return its outline. Raises ValueError."""
        try:
            for count, (operation, argument, _) in enumerate(pickletools.genops(file)):
                if count % _CLOCK_EVERY == 0 and time.thread_time() > give_up_at:
                    raise ValueError("it is too long")
                self._do(operation, argument)
            return self._stack.pop()
        except Exception as error:  # pickletools and a damaged stack raise many kinds
            raise ValueError(f"the pickle is damaged ({error})") from error

    def _do(self, operation: pickletools.OpcodeInfo, argument: object) -> None:
        name = operation.name
        if name in _SPECIAL:
            _SPECIAL[name](self, argument)
        elif name in _PUTS:
            self._memo[len(self._memo) if argument is None else argument] = self._stack[-1]
        elif name in _GETS:
            self._stack.append(self._memo[argument])
        elif name not in _IGNORED:
            self._plain(operation, argument)

    def _plain(self, operation: pickletools.OpcodeInfo, argument: object) -> None:
        """Take as many values as the operation takes, and add its argument in place of each result."""
        if pickletools.markobject in operation.stack_before:
            self._since_mark()
        elif operation.stack_before:
            self._take(len(operation.stack_before))
        self._stack += [_SINGLE.get(operation.name, argument)] * len(operation.stack_after)

    def _take(self, count: int) -> list[object]:
        taken = self._stack[len(self._stack) - count :]
        if len(taken) != count:
            raise ValueError("its stack is empty")
        del self._stack[len(self._stack) - count :]
        return taken

    def _since_mark(self) -> list[object]:
        return self._take(len(self._stack) - self._marks.pop())

    def _mark(self, _: object) -> None:
        self._marks.append(len(self._stack))

    def _list(self, items: Sequence[object]) -> None:
        self._stack.append(list(items))

    def _append(self, items: Sequence[object]) -> None:
        if isinstance(target := self._stack[-1], list):
            target += items

    def _set(self, items: Sequence[object]) -> None:
        if isinstance(target := self._stack[-1], dict):
            target.update(zip(map(_key, items[::2]), items[1::2], strict=False))

    def _dict(self, items: Sequence[object]) -> None:
        self._stack.append({})
        self._set(items)

    def _global(self, argument: object) -> None:
        self._stack.append(_Global(argument))

    def _stack_global(self, _: object) -> None:
        module, name = self._take(2)
        self._stack.append(_Global(f"{module} {name}"))

    def _call(self, taken: Sequence[object]) -> None:
        maker = taken[0] if taken and isinstance(taken[0], _Global) else ""
        self._stack.append({} if maker in _DICTIONARIES else Thing(str(maker)))

    def _build(self, _: object) -> None:
        (state,) = self._take(1)
        if isinstance(thing := self._stack[-1], Thing):
            thing.state = state[0] if isinstance(state, list) and state else state


def _key(key: object) -> object:
    """A dictionary's key; of one that is no plain value, its identity."""
    return key if isinstance(key, str | int | float | bytes | None) else id(key)


_CLOCK_EVERY = 1 << 14
_PUTS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GETS = {"GET", "BINGET", "LONG_BINGET"}
_IGNORED = {"PROTO", "FRAME", "STOP"}
_SINGLE: dict[str, object] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_DICTIONARIES = {"collections OrderedDict", "collections defaultdict", "collections Counter"}
_Step = Callable[[_Machine, object], None]


def _of(count: int, do: Callable[[_Machine, Sequence[object]], None]) -> _Step:
    """An operation on this many values; on those since the mark if it is 0."""

    def step(machine: _Machine, _: object) -> None:
        do(machine, machine._take(count) if count else machine._since_mark())

    return step


_SPECIAL: dict[str, _Step] = {
    "MARK": _Machine._mark,
    "EMPTY_DICT": lambda machine, _: machine._stack.append({}),
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_TUPLE", "EMPTY_SET"), lambda machine, _: machine._stack.append([])),
    **dict.fromkeys(("LIST", "TUPLE", "FROZENSET"), _of(0, _Machine._list)),
    **{f"TUPLE{count}": _of(count, _Machine._list) for count in (1, 2, 3)},
    **dict.fromkeys(("APPENDS", "ADDITEMS"), _of(0, _Machine._append)),
    "APPEND": _of(1, _Machine._append),
    "DICT": _of(0, _Machine._dict),
    "SETITEM": _of(2, _Machine._set),
    "SETITEMS": _of(0, _Machine._set),
    "GLOBAL": _Machine._global,
    "STACK_GLOBAL": _Machine._stack_global,
    **dict.fromkeys(("REDUCE", "NEWOBJ"), _of(2, _Machine._call)),
    "NEWOBJ_EX": _of(3, _Machine._call),
    "OBJ": _of(0, _Machine._call),
    "BUILD": _Machine._build,
    "DUP": lambda machine, _: machine._stack.append(machine._stack[-1]),
}

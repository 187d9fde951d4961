"""Reads what a checkpoint's pickle describes without making any of it: nothing is imported, called or built."""

from __future__ import annotations

import pickletools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_MIB = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """How much of a pickle is read before it counts as unreadable: a hostile one can describe endlessly much."""

    pickle_bytes: int
    directory_bytes: int
    """Of a zip file's list of members: some hundred bytes for each tensor."""
    operations: int
    seconds: float


AT_A_GLANCE = Limits(32 * _MIB, 8 * _MIB, 1_000_000, 3.0)
"""While a training runs beside it."""
THOROUGH = Limits(256 * _MIB, 64 * _MIB, 5_000_000, 60.0)
_CLOCK_EVERY = 1 << 14


class BadPickle(ValueError):
    """It is damaged, or does what no pickle of tensors does."""


class CutShort(BadPickle):
    """It breaks off before its end."""


@dataclass(eq=False, slots=True)
class Text:
    """A string constant, and the bytes of the pickle that make it."""

    value: str
    start: int
    end: int


@dataclass(eq=False, slots=True)
class Mapping:
    """A dictionary of any kind, with what was put into it."""

    entries: list[tuple[Any, Any]] = field(default_factory=list)
    metadata: Mapping | None = None
    """A state dict's own: its modules' names and versions."""


@dataclass(frozen=True, eq=False, slots=True)
class Global:
    """A function or class that is named; never looked up."""

    name: str


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """A call that unpickling would make."""

    function: Any
    arguments: Any


@dataclass(frozen=True, eq=False, slots=True)
class Stored:
    """A reference to what lies outside the pickle: a storage."""

    reference: Any


_TENSOR_MAKERS = ("torch._utils _rebuild_tensor", "torch._utils _rebuild_parameter")
_TEXTS = {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
_INTEGERS = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"}
_OPAQUE = object()
_MARK = object()


def is_tensor(value: object) -> bool:
    """Whether unpickling it would give a tensor or a parameter."""
    return (
        isinstance(value, Call)
        and isinstance(value.function, Global)
        and value.function.name.startswith(_TENSOR_MAKERS)
    )


@dataclass
class Description:
    """All of a pickle, as data."""

    root: Any
    """What unpickling would give."""
    mappings: list[Mapping]
    """In the order they begin."""
    stored: list[Stored]
    """What lies outside, in the order it is named."""
    frames: list[tuple[int, int]]
    """Where the frame marks of protocol 4 lie: they hold lengths, and may be left out."""
    size_bytes: int
    """Of this pickle; others may follow."""

    def state_dicts(self) -> Iterator[Mapping]:
        """The dictionaries that hold tensors by name."""
        for mapping in self.mappings:
            if any(isinstance(key, Text) and is_tensor(value) for key, value in mapping.entries):
                yield mapping


def describe(data: bytes, limits: Limits = THOROUGH) -> Description:
    """Follows the operations of the pickle that the bytes begin with. Raises BadPickle."""
    machine = _Machine()
    give_up_at = time.thread_time() + limits.seconds
    before: tuple[Any, Any, int] | None = None
    try:
        for count, (operation, argument, at) in enumerate(pickletools.genops(data)):
            is_late = count % _CLOCK_EVERY == 0 and time.thread_time() > give_up_at
            if count > limits.operations or at is None or is_late:
                raise BadPickle("its pickle is too long")
            if before is not None:
                machine.do(*before, at)
            before = (operation, argument, at)
        root = machine.result()
    except BadPickle:
        raise
    except MemoryError:
        raise BadPickle("its pickle asks for too much memory") from None
    except ValueError as error:  # what genops says of an operation that is no operation, or not all there
        kind = BadPickle if "unknown" in str(error) else CutShort
        raise kind(f"its pickle is damaged ({str(error)[:100]})") from error
    except Exception as error:  # genops and broken stacks raise many kinds
        raise BadPickle(f"its pickle is damaged ({str(error)[:100]})") from error
    size_bytes = before[2] + 1 if before else 0
    return Description(root, machine.mappings, machine.stored_objects, machine.frames, size_bytes)


class _Machine:
    """The pickle machine, with descriptions in the place of objects."""

    def __init__(self) -> None:
        self.mappings: list[Mapping] = []
        self.stored_objects: list[Stored] = []
        self.frames: list[tuple[int, int]] = []
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def do(self, operation: pickletools.OpcodeInfo, argument: Any, start: int, end: int) -> None:
        """One operation, whose bytes go from `start` to `end`."""
        name = operation.name
        if name in _TEXTS:
            self._stack.append(Text(argument, start, end))
        elif name == "FRAME":
            self.frames.append((start, end))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self._stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = self._stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self._stack.append(self._memo[argument])
        elif isinstance(argument, int) and name in _INTEGERS:
            self._stack.append(argument)
        elif name == "GLOBAL":
            self._stack.append(Global(argument))
        elif (special := _SPECIAL.get(name)) is not None:
            special(self)
        else:
            self._any_other(operation)

    def result(self) -> Any:
        """What is left when the pickle stops."""
        return self._stack[-1]

    def _any_other(self, operation: pickletools.OpcodeInfo) -> None:
        for taken in reversed(operation.stack_before):
            if taken is pickletools.stackslice:
                self._take_to_mark()
            elif taken is not pickletools.markobject:
                self._stack.pop()
        for given in operation.stack_after:
            self._stack.append(_MARK if given is pickletools.markobject else _OPAQUE)

    def _take_to_mark(self) -> list[Any]:
        at = len(self._stack) - 1
        while self._stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise BadPickle("a mark is missing")
        taken = self._stack[at + 1 :]
        del self._stack[at:]
        return taken

    def _new_mapping(self) -> Mapping:
        self.mappings.append(Mapping())
        return self.mappings[-1]

    def empty_dict(self) -> None:
        self._stack.append(self._new_mapping())

    def dict_of_slice(self) -> None:
        taken, mapping = self._take_to_mark(), self._new_mapping()
        mapping.entries += zip(taken[::2], taken[1::2], strict=True)
        self._stack.append(mapping)

    def set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._put(key, value)

    def set_items(self) -> None:
        taken = self._take_to_mark()
        for key, value in zip(taken[::2], taken[1::2], strict=True):
            self._put(key, value)

    def _put(self, key: Any, value: Any) -> None:
        if isinstance(self._stack[-1], Mapping):
            self._stack[-1].entries.append((key, value))

    def take_tuple(self) -> None:
        self._stack.append(tuple(self._take_to_mark()))

    def take_tuple_of(self, length: int) -> None:
        taken = tuple(self._stack[len(self._stack) - length :]) if length else ()
        if len(taken) != length:
            raise BadPickle("the stack is too short")
        del self._stack[len(self._stack) - length :]
        self._stack.append(taken)

    def stack_global(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        is_named = isinstance(name, Text) and isinstance(module, Text)
        self._stack.append(Global(f"{module.value} {name.value}") if is_named else _OPAQUE)

    def call(self) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if isinstance(function, Global) and function.name == "collections OrderedDict":
            self._stack.append(self._new_mapping())
        else:
            self._stack.append(Call(function, arguments))

    def build(self) -> None:
        state = self._stack.pop()
        target = self._stack[-1]
        if isinstance(target, Mapping) and isinstance(state, Mapping):
            for key, value in state.entries:
                if isinstance(key, Text) and key.value == "_metadata" and isinstance(value, Mapping):
                    target.metadata = value

    def stored(self) -> None:
        self.stored_objects.append(Stored(self._stack.pop()))
        self._stack.append(self.stored_objects[-1])


_SPECIAL: dict[str, Callable[[_Machine], None]] = {
    "EMPTY_DICT": _Machine.empty_dict,
    "DICT": _Machine.dict_of_slice,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "TUPLE": _Machine.take_tuple,
    "EMPTY_TUPLE": lambda machine: machine.take_tuple_of(0),
    "TUPLE1": lambda machine: machine.take_tuple_of(1),
    "TUPLE2": lambda machine: machine.take_tuple_of(2),
    "TUPLE3": lambda machine: machine.take_tuple_of(3),
    "STACK_GLOBAL": _Machine.stack_global,
    "REDUCE": _Machine.call,
    "NEWOBJ": _Machine.call,
    "BUILD": _Machine.build,
    "BINPERSID": _Machine.stored,
}

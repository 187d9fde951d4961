"""Reads the names of a checkpoint's tensors without torch: a pickle's operations are listed, never carried out."""

from __future__ import annotations

import io
import pickletools  # nosec B403: lists operations, executes none
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from domain.text.json_values import parse_json
from worker.node.regular_files import open_regular

WRAPPERS = ("module.", "_orig_mod.")
"""Of DistributedDataParallel or DataParallel, and torch.compile; each is removed once, as a model may use the word."""
LONGEST_BYTES = 32 * 1024 * 1024
"""Largest part of a file that is read for its names, because a training runs beside it."""
LONGEST_S = 3.0
"""Longest search for names in seconds of this thread's processor time: a busy machine finds as much."""
_CLOCK_EVERY = 1 << 14


def prefix_of(path: Path) -> str | None:
    """The prefix that a wrapper gave all names of a state dict in the file (`module.`).

    None without one, for a folder, and if the file cannot be read within the limits."""
    with suppress(OSError, MemoryError, ValueError, RecursionError), open_regular(path) as file:
        prefixes = map(prefix_in, _names_by_dictionary(file, time.thread_time() + LONGEST_S))
        return next(filter(None, prefixes), None)
    return None


def prefix_in(names: Iterable[str]) -> str:
    """The wrappers' prefix that all names have; empty if there is none."""
    names, prefix = list(names), ""
    wrappers = list(WRAPPERS) if names else []
    while common := [wrapper for wrapper in wrappers if all(name.startswith(prefix + wrapper) for name in names)]:
        prefix += common[0]
        wrappers.remove(common[0])
    return prefix


def is_archive(file: BinaryIO) -> bool:
    """Whether the file is a folder's tar archive; rewinds it."""
    head = file.read(262)
    file.seek(0)
    return head[257:] == b"ustar"


def _names_by_dictionary(file: BinaryIO, give_up_at: float) -> list[list[str]]:
    """The names of the tensors of each dictionary. Raises ValueError on damage, RecursionError."""
    if header := read_header(file):
        return [header.names]
    file.seek(0)
    head = io.BytesIO(file.read(LONGEST_BYTES))
    first = head.getvalue()[:30]
    if first.startswith(b"PK\x03\x04"):
        head.seek(30 + int.from_bytes(first[26:28], "little") + int.from_bytes(first[28:30], "little"))
    else:
        skip_legacy_header(head)
    return PickleNames(head, give_up_at).by_dictionary  # torch writes data.pkl first


# -- pickles -----------------------------------------------------------------------------------

LEGACY_MAGIC = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The pickled number at the start of torch's files before 1.6, or with `_use_new_zipfile_serialization=False`."""
_PUTS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_GETS = {"GET", "BINGET", "LONG_BINGET"}
_TEXTS = {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
_TENSOR_MAKERS = ("torch._utils _rebuild_tensor", "torch._utils _rebuild_parameter", "torch._tensor _rebuild")
_STORAGE_SUFFIX = "Storage"


class _Global(str):
    """Module and name of a class or function, which is never looked up."""


class PickleNames:
    """Names of tensors and storages in the pickle at a file's position, which moves to the pickle's end.

    Raises ValueError if the pickle is damaged or not read when the thread's processor time is `give_up_at`."""

    def __init__(self, file: io.BytesIO, give_up_at: float = float("inf")) -> None:
        self.by_dictionary: list[list[str]] = []
        """The names of the tensors of each dictionary."""
        self.storages: dict[str, str] = {}
        """The key of each storage -> its element type, such as `Float`."""
        self._open: list[list[str]] = [[]]
        """The tensors' names since each open mark."""
        self._memo: dict[int, object] = {}
        self._top: object = None
        self._texts: list[str] = []
        """The texts pushed directly one after another."""
        self._element_type: str | None = None
        try:
            self._read(file, give_up_at)
        except Exception as error:  # pickletools and missing marks raise many kinds
            raise ValueError(f"the pickle is damaged ({error})") from error

    def _read(self, file: io.BytesIO, give_up_at: float) -> None:
        for count, (operation, argument, _) in enumerate(pickletools.genops(file)):
            if count % _CLOCK_EVERY == 0 and time.thread_time() > give_up_at:
                raise ValueError("it is too long")
            self._follow(operation.name, argument, pickletools.markobject in operation.stack_before)

    def _follow(self, operation: str, argument: object, takes_mark: bool) -> None:
        if operation in _PUTS:
            self._memo[argument if isinstance(argument, int) else len(self._memo)] = self._top
        elif operation in _GETS:
            self._push(self._memo.get(argument) if isinstance(argument, int) else None)
        elif operation in _TEXTS:
            self._push(argument)
        elif operation == "GLOBAL":
            self._push(_Global(argument))
        elif operation == "STACK_GLOBAL":
            name, module = self._texts.pop(), self._texts.pop()
            self._push(_Global(f"{module} {name}"))
        else:
            self._push(None)
            self._close(operation, takes_mark)

    def _push(self, value: object) -> None:
        self._top = value
        if isinstance(value, _Global):
            if value.startswith(_TENSOR_MAKERS) and self._texts:
                self._open[-1].append(self._texts[-1])
            is_storage = value.startswith("torch") and value.endswith(_STORAGE_SUFFIX)
            self._element_type = value.rpartition(" ")[2].removesuffix(_STORAGE_SUFFIX) if is_storage else None
        elif isinstance(value, str):
            if self._element_type is not None:  # a storage's type is followed by its key
                self.storages[value] = self._element_type
            self._texts.append(value)
            self._element_type = None
            return
        self._texts.clear()

    def _close(self, operation: str, takes_mark: bool) -> None:
        if operation == "MARK":
            self._open.append([])
        elif operation == "SETITEM" and self._open[-1]:
            self.by_dictionary.append([self._open[-1].pop()])
        elif takes_mark:
            names = self._open.pop()
            if names and operation in ("SETITEMS", "DICT"):
                self.by_dictionary.append(names)


def skip_legacy_header(file: io.BytesIO) -> bool:
    """Skip the three pickles before the content in torch's format before 1.6; False if the file has another format.

    Raises ValueError."""
    is_legacy = LEGACY_MAGIC in file.getvalue()[:32]
    for _ in range(3 if is_legacy else 0):
        PickleNames(file)
    return is_legacy


# The header of a safetensors file, read without the library, which a node may lack.

LONGEST_HEADER_BYTES = 100_000_000
"""Limit of the format."""


@dataclass(frozen=True)
class SafetensorsHeader:
    """What a safetensors file begins with: eight bytes of length, and a JSON object of that many bytes."""

    size_bytes: int
    """Length of the JSON object."""
    entries: dict[str, Any]
    """Name -> data type, shape and place of each tensor, and the file's own `__metadata__`."""

    @property
    def names(self) -> list[str]:
        """The tensors' names."""
        return [name for name in self.entries if name != "__metadata__"]

    @property
    def file_bytes(self) -> int | None:
        """The size of the whole file; None if the header does not say it."""
        try:
            ends = [self.entries[name]["data_offsets"][1] for name in self.names]
            return int(8 + self.size_bytes + max(ends, default=0))
        except (KeyError, IndexError, TypeError, ValueError, OverflowError):
            return None


def read_header(file: BinaryIO) -> SafetensorsHeader | None:
    """The header at the file's beginning; None where there is none, or an incomplete one."""
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if file.read(1) != b"{":
        return None
    text = b"{" + file.read(min(length, LONGEST_HEADER_BYTES) - 1)
    try:
        entries = parse_json(text) if len(text) == length else None
    except ValueError:
        return None
    return SafetensorsHeader(length, entries) if isinstance(entries, dict) else None

"""Where things lie in a checkpoint file: its pickle, its storages, its names. Read by offset, never unpickled."""

from __future__ import annotations

import json
import os
import pickletools
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from worker.checkpoints.pickle_reader import (
    AT_A_GLANCE,
    BadPickle,
    Description,
    Global,
    Limits,
    Stored,
    Text,
    describe,
)

OLD_MAGIC = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The number with which torch.save's files began before 1.6, and begin with `_use_new_zipfile_serialization=False`."""


class Unreadable(ValueError):
    """It is damaged, or no file of a known kind; the text goes on after "the checkpoint cannot be read:"."""


@dataclass(frozen=True)
class Region:
    """A stretch of an open file."""

    descriptor: int
    begins: int
    size: int

    @classmethod
    def of(cls, descriptor: int) -> Region:
        """All of the file."""
        return cls(descriptor, 0, os.fstat(descriptor).st_size)

    def part(self, at: int, size: int) -> Region:
        """A stretch of this one."""
        if at < 0 or size < 0 or at + size > self.size:
            raise Unreadable("something in it lies beyond its end")
        return Region(self.descriptor, self.begins + at, size)

    def read(self, at: int, size: int) -> bytes:
        """Exactly so many bytes."""
        part = self.part(at, size)
        data = os.pread(part.descriptor, size, part.begins)
        if len(data) != size:
            raise Unreadable("it is cut short")
        return data

    def read_up_to(self, at: int, size: int) -> bytes:
        """As many of these bytes as there are."""
        return self.read(at, min(size, self.size - at)) if at < self.size else b""


@dataclass(frozen=True)
class TorchFile:
    """What torch.save writes: a pickle, and the storages that it refers to."""

    whole: Region
    pickle_at: int
    pickle_bytes: bytes
    description: Description
    storages: Mapping[str, Region] = field(default_factory=dict)
    checksums_at: tuple[int, ...] | None = None
    """Where a zip file keeps the pickle's checksum; None in the older format, which has none."""
    little_endian: bool = True
    ends_at: int | None = None
    """Of the older format: where its last storage ends."""


@dataclass(frozen=True)
class SafetensorsFile:
    """A header of names, types, shapes and places; then the tensors."""

    whole: Region
    header: Mapping[str, Any]
    begins: int

    @property
    def names(self) -> list[str]:
        """Of the tensors."""
        return [name for name in self.header if name != "__metadata__"]


def read_layout(whole: Region, limits: Limits = AT_A_GLANCE) -> TorchFile | SafetensorsFile:
    """Told by its first bytes, whatever it is called. Raises Unreadable, BadPickle, OSError."""
    head = whole.read_up_to(0, 16)
    if head.startswith(b"PK\x03\x04"):
        return _read_zip(whole, limits)
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return _read_old(whole, limits)
    if head[8:9] == b"{":
        return _read_safetensors(whole, limits)
    raise Unreadable("it is neither torch's nor safetensors")


# -- torch's zip files -------------------------------------------------------------------------

_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s4B4H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_LONGEST_COMMENT = 65535
_HAS_DESCRIPTOR, _IS_ENCRYPTED = 8, 1


@dataclass(frozen=True)
class ZipMember:
    """What a zip file's list says of one member."""

    name: str
    size: int
    crc: int
    header_at: int
    entry_at: int
    is_stored: bool
    has_descriptor: bool


def _read_zip(whole: Region, limits: Limits) -> TorchFile:
    """Since torch 1.6: `<name>/data.pkl`, and `<name>/data/<key>` for each storage; nothing is compressed."""
    members = {member.name: member for member in zip_members(whole, limits)}
    found = [name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(found) != 1:
        raise Unreadable("there is not exactly one data.pkl in it")
    pickle, top = members[found[0]], found[0].partition("/")[0]
    region = content_of(whole, pickle)
    if region.size > limits.pickle_bytes:
        raise Unreadable("its pickle is too long")
    data = region.read(0, region.size)
    storages = _Storages(whole, members, f"{top}/data/")
    at = region.begins - whole.begins
    checksums = _checksums_at(whole, pickle, at)
    order = members.get(f"{top}/byteorder")
    is_little = order is None or order.size != 3 or content_of(whole, order).read(0, 3) != b"big"
    return TorchFile(whole, at, data, describe(data, limits), storages, checksums, is_little)


class _Storages(Mapping[str, Region]):
    """Looked up when they are asked for: each costs a read of its own header."""

    def __init__(self, whole: Region, members: Mapping[str, ZipMember], below: str) -> None:
        self._whole, self._below = whole, below
        self._members = {name.removeprefix(below): m for name, m in members.items() if name.startswith(below)}

    def __getitem__(self, key: str) -> Region:
        return content_of(self._whole, self._members[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def zip_members(whole: Region, limits: Limits) -> Iterator[ZipMember]:
    """The zip file's own list, read within limits; a name that is there twice is refused."""
    at, size = _directory(whole)
    if size > limits.directory_bytes:
        raise Unreadable("its list of members is too long")
    directory, seen, offset = whole.read(at, size), set(), 0
    while offset < size:
        if offset + _ENTRY.size > size or directory[offset : offset + 4] != b"PK\x01\x02":
            raise Unreadable("its list of members is damaged")
        entry = _ENTRY.unpack_from(directory, offset)
        name_bytes, extra_bytes, comment_bytes = entry[12:15]
        name_at = offset + _ENTRY.size
        name = directory[name_at : name_at + name_bytes].decode(errors="replace")
        if name in seen:
            raise Unreadable("a name is in it twice")
        seen.add(name)
        extra = directory[name_at + name_bytes : name_at + name_bytes + extra_bytes]
        full, packed, header_at = _large([entry[11], entry[10], entry[18]], extra)
        flags, method = entry[5], entry[6]
        is_stored = method == 0 and full == packed and not flags & _IS_ENCRYPTED
        yield ZipMember(
            name, full, entry[9], header_at, at + offset, is_stored, bool(flags & _HAS_DESCRIPTOR)
        )
        offset = name_at + name_bytes + extra_bytes + comment_bytes


def _directory(whole: Region) -> tuple[int, int]:
    """Where the list of members begins, and its length."""
    tail_bytes = min(whole.size, _END.size + _LONGEST_COMMENT)
    tail_at = whole.size - tail_bytes
    tail = whole.read(tail_at, tail_bytes)
    found = tail.rfind(b"PK\x05\x06")
    if found < 0 or found + _END.size > len(tail):
        raise Unreadable("its end is missing")
    *_, size, at, _comment = _END.unpack_from(tail, found)
    locator = tail[max(0, found - 20) : found]
    if locator[:4] == b"PK\x06\x07":
        (end_at,) = struct.unpack_from("<Q", locator, 8)
        end = _END_64.unpack(whole.read(end_at, _END_64.size))
        if end[0] != b"PK\x06\x06":
            raise Unreadable("its end is damaged")
        size, at = end[-2:]
    return at, size


def _large(numbers: list[int], extra: bytes) -> list[int]:
    """Numbers that do not fit into 32 bits stand in an extra field, in this order."""
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            field_at = at + 4
            for index, number in enumerate(numbers):
                if number == 0xFFFFFFFF and field_at + 8 <= at + 4 + size <= len(extra):
                    (numbers[index],) = struct.unpack_from("<Q", extra, field_at)
                    field_at += 8
        at += 4 + size
    return numbers


def content_of(whole: Region, member: ZipMember) -> Region:
    """Where a member's own bytes lie. Raises Unreadable when they are compressed."""
    if not member.is_stored:
        raise Unreadable("it is compressed or encrypted, which torch never does")
    header = _LOCAL.unpack(whole.read(member.header_at, _LOCAL.size))
    if header[0] != b"PK\x03\x04":
        raise Unreadable("a member is not where it should be")
    return whole.part(member.header_at + _LOCAL.size + header[9] + header[10], member.size)


def _checksums_at(whole: Region, member: ZipMember, content_at: int) -> tuple[int, ...]:
    """In the list of members, in the member's own header, and in what follows its content, if it is there."""
    found = [member.entry_at + 16, *([] if member.has_descriptor else [member.header_at + 14])]
    if member.has_descriptor and whole.read_up_to(content_at + member.size, 4) == b"PK\x07\x08":
        found.append(content_at + member.size + 4)
    return tuple(found)


# -- torch's older files -----------------------------------------------------------------------

ITEM_BYTES = {
    **dict.fromkeys(("ComplexDouble",), 16),
    **dict.fromkeys(("Double", "Long", "ComplexFloat"), 8),
    **dict.fromkeys(("Float", "Int", "QInt32"), 4),
    **dict.fromkeys(("Half", "BFloat16", "Short"), 2),
    **dict.fromkeys(("Char", "Byte", "Bool", "Untyped", "QInt8", "QUInt8"), 1),
}
"""By the name of the storage's class."""


def _read_old(whole: Region, limits: Limits) -> TorchFile:
    """Magic number, version and machine, each a pickle; what was saved; the storages' names; the storages.

    A plain pickle is its first and only one.
    """
    data, at = whole.read_up_to(0, limits.pickle_bytes), 0
    is_torch = OLD_MAGIC in data[:32]
    for _ in range(3 if is_torch else 0):
        at += describe(data[at : at + 4096], limits).size_bytes
    found = describe(data[at:], limits)
    names_at = at + found.size_bytes
    pickle_bytes = data[at:names_at]
    if not is_torch:
        return TorchFile(whole, at, pickle_bytes, found)
    names = data[names_at:]
    names_bytes = describe(names, limits).size_bytes
    keys = [text for _, text, _ in pickletools.genops(names[:names_bytes]) if isinstance(text, str)]
    storages = _old_storages(whole, names_at + names_bytes, keys, found)
    ends = [each.begins - whole.begins + each.size for each in storages.values()]
    return TorchFile(
        whole, at, pickle_bytes, found, storages, ends_at=max(ends, default=names_at + names_bytes)
    )


def _old_storages(whole: Region, at: int, keys: list[str], found: Description) -> dict[str, Region]:
    """One after the other, each behind its length, which counts elements."""
    item_bytes = dict(each for stored in found.stored if (each := _reference(stored)))
    storages: dict[str, Region] = {}
    for key in keys:
        if key not in item_bytes:
            raise BadPickle("a storage in it is of an unknown kind")
        (count,) = struct.unpack("<q", whole.read(at, 8))
        storages[key] = whole.part(at + 8, count * item_bytes[key])
        at += 8 + storages[key].size
    return storages


def _reference(stored: Stored) -> tuple[str, int] | None:
    """A storage's name, and how long its elements are; None for what else a pickle refers to (a class's source)."""
    match stored.reference:
        case (Text(value="storage"), Global(name=kind), Text(value=key), *_):
            name = kind.rpartition(" ")[2].removesuffix("Storage")
            return (key, ITEM_BYTES[name]) if name in ITEM_BYTES else None
    return None


# -- safetensors -------------------------------------------------------------------------------

_LONGEST_HEADER = 100_000_000
"""The format's own limit."""


def _read_safetensors(whole: Region, limits: Limits) -> SafetensorsFile:
    size = int.from_bytes(whole.read(0, 8), "little")
    if size > min(_LONGEST_HEADER, limits.pickle_bytes):
        raise Unreadable("its header is too long")
    try:
        header = json.loads(whole.read(8, size))
    except (ValueError, RecursionError):
        raise Unreadable("its header is no JSON") from None
    if not isinstance(header, dict):
        raise Unreadable("its header is no object")
    return SafetensorsFile(whole, header, 8 + size)

"""Prefixes that a wrapper puts before every name in a checkpoint: seen, and taken off in a copy."""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from worker.checkpoints.layout import Region, SafetensorsFile, TorchFile, Unreadable, read_layout
from worker.checkpoints.pickle_reader import (
    AT_A_GLANCE,
    THOROUGH,
    Call,
    Description,
    Limits,
    Mapping,
    Text,
    is_tensor,
)
from worker.checkpoints.pieces import CannotRewrite, Rewriting, patched
from worker.launch.unpack import BadArchive, members
from worker.node.run_files import is_checkpoint_name

WRAPPERS = ("module.", "_orig_mod.")
"""DistributedDataParallel and DataParallel; torch.compile. Each is taken off once: a model may use the words, too."""
MOST_FILES = 64
"""So many of a folder's weight files are looked into."""


def prefix_of(path: Path, limits: Limits = AT_A_GLANCE) -> str | None:
    """`module.` when the names of a model's tensors all begin with it: the DDP wrapper was saved.

    None when they do not, and for what cannot be read within the limits; no tensor is touched.
    """
    give_up_at = time.monotonic() + limits.seconds
    try:
        with path.open("rb") as file:
            for region in _weights(Region.of(file.fileno())):
                left_s = give_up_at - time.monotonic()
                if left_s < 0:
                    return None
                with suppress(ValueError):
                    if prefix := _prefix_in(read_layout(region, replace(limits, seconds=left_s))):
                        return prefix
    except (OSError, ValueError, MemoryError):
        pass
    return None


def without_prefix(whole: Region, limits: Limits = THOROUGH) -> Rewriting:
    """The same with shorter names; what carries no prefix keeps them. Raises CannotRewrite, ValueError, OSError."""
    if is_archive(whole):
        return _archive_without_prefix(whole, limits)
    layout = read_layout(whole, limits)
    prefix = _prefix_in(layout)
    if prefix is None:
        return Rewriting([whole], ["No prefix was found: the names are as they were saved."])
    return Rewriting(patched(whole, _patches(layout)), [f"Names lost their prefix {prefix}"])


def prefix_in(names: Iterable[str]) -> str:
    """What all names begin with because of wrappers; empty where they do not."""
    known, found = list(names), ""
    left = list(WRAPPERS) if known else []
    while added := [each for each in left if all(name.startswith(found + each) for name in known)]:
        found += added[0]
        left.remove(added[0])
    return found


def tensors(mapping: Mapping) -> dict[str, Call]:
    """A state dict's tensors by name."""
    found = ((key, value) for key, value in mapping.entries if isinstance(key, Text) and is_tensor(value))
    return {key.value: value for key, value in found}


# -- which names -------------------------------------------------------------------------------


def _prefix_in(layout: TorchFile | SafetensorsFile) -> str | None:
    if isinstance(layout, SafetensorsFile):
        return prefix_in(layout.names) or None
    found = (prefix_in(tensors(mapping)) for mapping in layout.description.state_dicts())
    return next(filter(None, found), None)


def _renamed(described: Description) -> Iterator[tuple[Text, str]]:
    """The constants to shorten, each with its new value: names of tensors, and of modules in the metadata."""
    for mapping in described.state_dicts():
        prefix = prefix_in(tensors(mapping))
        owners = [mapping, *([mapping.metadata] if mapping.metadata else [])] if prefix else []
        for text in (key for owner in owners for key, _ in owner.entries if isinstance(key, Text)):
            if f"{text.value}.".startswith(prefix):
                yield text, text.value[len(prefix) :]


# -- one file ----------------------------------------------------------------------------------

Patch = tuple[int, int, bytes]


def _patches(layout: TorchFile | SafetensorsFile) -> list[Patch]:
    """What changes in the file; in the formats of today nothing moves, so that it can be memory-mapped as before."""
    if isinstance(layout, SafetensorsFile):
        return [(0, layout.begins, _shorter_header(layout))]
    pickle, size = _shorter_pickle(layout.pickle_bytes, layout.description), len(layout.pickle_bytes)
    if layout.checksums_at is None:
        return [(layout.pickle_at, size, pickle)]
    padded = pickle.ljust(size, b"\0")  # what follows a pickle's end is not read
    if len(padded) > size:
        raise CannotRewrite("Its pickle would become longer, which no pickle of torch's does.")
    checksum = zlib.crc32(padded).to_bytes(4, "little")
    return [(layout.pickle_at, size, padded), *((at, 4, checksum) for at in layout.checksums_at)]


def _shorter_pickle(data: bytes, described: Description) -> bytes:
    """The same operations with shorter constants; frames are left out, because they hold lengths."""
    changes = {text.start: (text.end, _constant(name)) for text, name in _renamed(described)}
    changes |= {start: (end, b"") for start, end in described.frames}
    pieces, at = [], 0
    for start, (end, replacement) in sorted(changes.items()):
        pieces += [data[at:start], replacement]
        at = end
    return b"".join([*pieces, data[at : described.size_bytes]])


def _constant(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def _shorter_header(layout: SafetensorsFile) -> bytes:
    prefix = prefix_in(layout.names)
    header = {name.removeprefix(prefix): about for name, about in layout.header.items()}
    room = layout.begins - 8
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")
    if len(text) > room:
        raise CannotRewrite("Its header would become longer, which no header of safetensors' own does.")
    return room.to_bytes(8, "little") + text.ljust(room)


# -- a folder ----------------------------------------------------------------------------------


def is_archive(whole: Region) -> bool:
    """Whether it is a folder, on its way as one tar file."""
    return whole.read_up_to(257, 5) == b"ustar"


def archive_files(whole: Region) -> Iterator[tuple[str, Region]]:
    """The files in a folder's archive, where their bytes lie."""
    with os.fdopen(os.dup(whole.descriptor), "rb") as file:
        file.seek(whole.begins)
        try:
            for member in members(file):
                if member.isreg():
                    yield member.name, whole.part(file.tell() - whole.begins, member.size)
        except BadArchive as error:
            raise Unreadable(str(error)) from error


def _weights(whole: Region) -> Iterator[Region]:
    """The file itself, or those of a folder's that hold names and tensors."""
    if not is_archive(whole):
        yield whole
        return
    found = (region for name, region in archive_files(whole) if is_checkpoint_name(name.rpartition("/")[2]))
    yield from islice(found, MOST_FILES)


def _archive_without_prefix(whole: Region, limits: Limits) -> Rewriting:
    patches: list[Patch] = []
    changed, prefix = 0, None
    for name, region in archive_files(whole):
        at = region.begins - whole.begins
        if name.endswith(".index.json"):
            patches += [(at, region.size, _shorter_index(region))]
        elif is_checkpoint_name(name.rpartition("/")[2]):
            found, inner = _member_patches(name, region, limits)
            patches += [(at + start, size, data) for start, size, data in inner]
            changed, prefix = changed + bool(found), prefix or found
    if prefix is None:
        return Rewriting([whole], ["No prefix was found: the names are as they were saved."])
    return Rewriting(patched(whole, patches), [f"Names in {changed} of its files lost their prefix {prefix}"])


def _member_patches(name: str, region: Region, limits: Limits) -> tuple[str | None, list[Patch]]:
    try:
        layout = read_layout(region, limits)
    except ValueError:
        return None, []  # what cannot be read stays as it is
    prefix = _prefix_in(layout)
    patches = _patches(layout) if prefix else []
    if any(len(data) != size for _, size, data in patches):
        raise CannotRewrite(
            f"{name} in it is in torch's format from before 1.6: unpack the folder, and load it."
        )
    return prefix, patches


def _shorter_index(region: Region) -> bytes:
    """Which tensor is in which file: as long as before, filled up with spaces."""
    data = region.read(0, region.size) if region.size <= THOROUGH.pickle_bytes else b""
    try:
        index = json.loads(data)
        prefix = prefix_in(index["weight_map"])
        index["weight_map"] = {name.removeprefix(prefix): file for name, file in index["weight_map"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CannotRewrite("The list of its weights (.index.json) cannot be read.") from None
    text = json.dumps(index, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")
    return text.ljust(region.size) if prefix and len(text) <= region.size else data

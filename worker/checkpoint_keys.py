"""A checkpoint's `module.` prefix: seen, and taken off in a copy, while nothing is unpickled."""

from __future__ import annotations

import json
import shutil
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal

from worker.checkpoint_pickle import (
    Call,
    Description,
    Global,
    Stored,
    Text,
    describe,
    is_tensor,
)
from worker.checkpoint_pickle import Mapping as Described

PREFIX = "module."
MAX_PICKLE_BYTES = 256 * 1024 * 1024
MAX_HEADER_BYTES = 100_000_000
_COPY_BYTES = 4 * 1024 * 1024
_ALIGNMENT = 64
"""Of tensors in torch's files, so that they can be memory-mapped."""

Format = Literal["pt", "safetensors"]


class CannotConvert(Exception):
    """Why there can be no such copy, in one sentence."""


def prefix_of(path: Path) -> str | None:
    """`module.` when the names of a model's tensors all begin with it: the DDP wrapper was saved.

    None when they do not, and for what cannot be read; the file's tensors are not touched.
    """
    try:
        if _is_safetensors(path):
            with path.open("rb") as file:
                return _prefix(name for name in _header(file)[0] if name != "__metadata__")
        described = _TorchZip(path).description if zipfile.is_zipfile(path) else _describe_old(path)
    except (OSError, ValueError, CannotConvert, zipfile.BadZipFile):
        return None
    return PREFIX if any(map(_has_prefix, described.state_dicts())) else None


def strip_module_prefix(source: Path, target: Path, format: Format = "pt") -> None:
    """Writes a copy without the prefix: torch's own format with all that is in the file, or the model's tensors
    alone as safetensors. What carries no prefix keeps its names. Raises CannotConvert, OSError.
    """
    try:
        if _is_safetensors(source):
            if format != "safetensors":
                raise CannotConvert("A safetensors file stays one: ask for safetensors.")
            _strip_safetensors(source, target)
        elif not zipfile.is_zipfile(source):
            raise CannotConvert(
                "It is in torch's format from before 1.6, or no checkpoint: it stays as it is."
            )
        elif format == "pt":
            _strip_zip(_TorchZip(source), target)
        else:
            _write_safetensors(_TorchZip(source), target)
    except (ValueError, zipfile.BadZipFile) as error:
        raise CannotConvert(f"The checkpoint cannot be read: {error}") from error


# -- names -------------------------------------------------------------------------------------


def _prefix(names: Iterable[str]) -> str | None:
    known = list(names)
    return PREFIX if known and all(name.startswith(PREFIX) for name in known) else None


def _tensors(mapping: Described) -> list[tuple[Text, Call]]:
    found = ((key, value) for key, value in mapping.entries if isinstance(key, Text) and is_tensor(value))
    return list(found)


def _has_prefix(mapping: Described) -> bool:
    return _prefix(key.value for key, _ in _tensors(mapping)) is not None


def _renamed(described: Description) -> dict[int, Text]:
    """The constants to shorten, by where they begin: names of tensors, and of modules in the metadata."""
    texts = []
    for mapping in filter(_has_prefix, described.state_dicts()):
        owners = [mapping, *([mapping.metadata] if mapping.metadata else [])]
        texts += [key for owner in owners for key, _ in owner.entries if isinstance(key, Text)]
    return {text.start: text for text in texts if f"{text.value}.".startswith(PREFIX)}


# -- torch's zip files -------------------------------------------------------------------------


class _TorchZip:
    """What torch.save writes since 1.6: a pickle, and beside it one file for each storage."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with zipfile.ZipFile(path) as archive:
            self.infos = archive.infolist()
            pickles = [info for info in self.infos if info.filename.count("/") == 1]
            found = [info for info in pickles if info.filename.endswith("/data.pkl")]
            if len(found) != 1 or found[0].file_size > MAX_PICKLE_BYTES:
                raise ValueError("there is not exactly one data.pkl of a sensible size in it")
            self.pickle_name = found[0].filename
            self.pickle = archive.read(found[0])
        self.top = self.pickle_name.partition("/")[0]
        self.description = describe(self.pickle)


def _strip_zip(source: _TorchZip, target: Path) -> None:
    """All files as they are, but the pickle with shorter names."""
    with (
        zipfile.ZipFile(source.path) as archive,
        zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as copy,
    ):
        for info in source.infos:
            fresh = zipfile.ZipInfo(info.filename, date_time=(1980, 1, 1, 0, 0, 0))
            if info.filename == source.pickle_name:
                data = _without_prefix(source.pickle, source.description)
                _align(fresh, len(data), copy)
                copy.writestr(fresh, data)
                continue
            _align(fresh, info.file_size, copy)
            with archive.open(info) as content, copy.open(fresh, "w") as place:
                shutil.copyfileobj(content, place, _COPY_BYTES)


def _align(info: zipfile.ZipInfo, size: int, copy: zipfile.ZipFile) -> None:
    """Pads the header as torch does, so that the content begins at a multiple of 64."""
    info.file_size = size
    begins = copy.fp.tell() if copy.fp else 0
    is_large = size * 1.05 > zipfile.ZIP64_LIMIT
    header_bytes = 30 + len(info.filename.encode()) + 4 + (20 if is_large else 0)
    padding = -(begins + header_bytes) % _ALIGNMENT
    info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding


def _without_prefix(data: bytes, described: Description) -> bytes:
    """The same operations with shorter constants; frames are left out, because they hold lengths."""
    shortened = _renamed(described)
    changes = {start: (text.end, _constant(text.value[len(PREFIX) :])) for start, text in shortened.items()}
    changes |= {start: (end, b"") for start, end in described.frames}
    pieces, at = [], 0
    for start, (end, replacement) in sorted(changes.items()):
        pieces += [data[at:start], replacement]
        at = end
    return b"".join([*pieces, data[at:]])


def _constant(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def _describe_old(path: Path) -> Description:
    """Before torch 1.6: a magic number, a version, the machine, and then what was saved."""
    with path.open("rb") as file:
        first = describe(file)
        for _ in range(3 if not first.mappings else 0):
            first = describe(file)
    return first


# -- safetensors -------------------------------------------------------------------------------

_TYPES = {
    "Double": ("F64", 8),
    "Float": ("F32", 4),
    "Half": ("F16", 2),
    "BFloat16": ("BF16", 2),
    "Long": ("I64", 8),
    "Int": ("I32", 4),
    "Short": ("I16", 2),
    "Char": ("I8", 1),
    "Byte": ("U8", 1),
    "Bool": ("BOOL", 1),
}


@dataclass(frozen=True)
class _Tensor:
    """Where a tensor's bytes lie in the zip file."""

    name: str
    type: str
    shape: Sequence[int]
    storage: str
    begins: int
    size: int


def _is_safetensors(path: Path) -> bool:
    return path.suffix == ".safetensors"


def _header(file: IO[bytes]) -> tuple[dict[str, Any], int]:
    """The header, and where the tensors begin."""
    size = int.from_bytes(file.read(8), "little")
    if size > MAX_HEADER_BYTES:
        raise ValueError("its header is too long")
    header = json.loads(file.read(size))
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    return header, 8 + size


def _write_header(file: IO[bytes], header: Mapping[str, Any]) -> None:
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)


def _strip_safetensors(source: Path, target: Path) -> None:
    with source.open("rb") as file, target.open("wb") as copy:
        header, begins = _header(file)
        if _prefix(name for name in header if name != "__metadata__"):
            header = {name.removeprefix(PREFIX): value for name, value in header.items()}
        _write_header(copy, header)
        file.seek(begins)
        shutil.copyfileobj(file, copy, _COPY_BYTES)


def _write_safetensors(source: _TorchZip, target: Path) -> None:
    """The model's tensors: of several state dicts the one with the prefix, else the one with most names."""
    found = list(source.description.state_dicts())
    if not found:
        raise CannotConvert("There is no model in it: no names with tensors.")
    model = max(found, key=lambda mapping: (_has_prefix(mapping), len(_tensors(mapping))))
    cut = PREFIX if _has_prefix(model) else ""
    tensors = [_tensor(key.value.removeprefix(cut), call) for key, call in _tensors(model)]
    ends = [0]
    for tensor in tensors:
        ends.append(ends[-1] + tensor.size)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for tensor, offsets in zip(tensors, pairwise(ends), strict=True):
        header[tensor.name] = {"dtype": tensor.type, "shape": tensor.shape, "data_offsets": offsets}
    with zipfile.ZipFile(source.path) as archive, target.open("wb") as copy:
        _write_header(copy, header)
        for tensor in tensors:
            _copy_tensor(archive, f"{source.top}/data/{tensor.storage}", tensor, copy)


def _copy_tensor(archive: zipfile.ZipFile, name: str, tensor: _Tensor, copy: IO[bytes]) -> None:
    try:
        with archive.open(name) as content:
            content.seek(tensor.begins)
            for size in _pieces(tensor.size):
                piece = content.read(size)
                if len(piece) != size:
                    raise CannotConvert(f"{tensor.name} goes beyond the end of its storage.")
                copy.write(piece)
    except KeyError as error:
        raise CannotConvert(f"The storage of {tensor.name} is missing.") from error


def _pieces(size: int) -> Iterator[int]:
    while size:
        yield min(size, _COPY_BYTES)
        size -= min(size, _COPY_BYTES)


def _tensor(name: str, call: Call) -> _Tensor:
    """From the arguments that `torch._utils._rebuild_tensor_v2` would get."""
    try:
        if call.function.name.startswith("torch._utils _rebuild_parameter"):
            call = call.arguments[0]
        stored, offset, shape, strides = call.arguments[:4]
        if not isinstance(stored, Stored):
            raise TypeError
        _, kind, storage, *_ = stored.reference
        type_name, item_bytes = _TYPES[_type_of(kind)]
        if not all(isinstance(number, int) and number >= 0 for number in (offset, *shape, *strides)):
            raise TypeError
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise CannotConvert(f"{name} is not a plain tensor: ask for torch's own format.") from error
    count = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=False):
        if length > 1 and stride != count:
            raise CannotConvert(f"{name} is not contiguous in memory: ask for torch's own format.")
        count *= length
    return _Tensor(name, type_name, list(shape), storage.value, offset * item_bytes, count * item_bytes)


def _type_of(kind: object) -> str:
    if not isinstance(kind, Global):
        raise TypeError("no storage's type")
    return kind.name.removeprefix("torch ").removesuffix("Storage")

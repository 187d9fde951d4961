"""Finds the bytes of a tensor that torch.save wrote inside a larger file, so that nothing but them is read."""

from __future__ import annotations

import io
import os
import pickle  # nosec B403: makes nothing but the description below
import zipfile
from dataclasses import dataclass
from io import FileIO
from typing import Any

from ..sources import TensorFacts

ZIP_HEADER_BYTES = 30


def find_bytes(file: FileIO, begin: int, length: int, facts: TensorFacts) -> int | None:
    """The offset of the bytes of the only tensor in that part of the file.

    None unless it is as described: plain, in row-major order, little-endian. Raises OSError."""
    try:
        with zipfile.ZipFile(_Part(file, begin, length)) as archive:
            members = {member.filename.partition("/")[2]: member for member in archive.infolist()}
            saved = _described(_content(archive, members["data.pkl"]))
            is_little = "byteorder" not in members or _content(archive, members["byteorder"]) == b"little"
            data = members[f"data/{saved.key}"]
            is_plain = is_little and data.compress_type == zipfile.ZIP_STORED and data.file_size >= facts.nbytes
            is_expected = (saved.shape, saved.dtype) == (facts.shape, facts.dtype) and saved.is_in_order
            return begin + _data_offset(file, begin, data) if is_plain and is_expected else None
    except (zipfile.BadZipFile, pickle.UnpicklingError, KeyError, ValueError, TypeError, IndexError, EOFError):
        return None


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    del member.CRC  # torch may have omitted it
    return archive.read(member)


def _data_offset(file: FileIO, begin: int, member: zipfile.ZipInfo) -> int:
    header = os.pread(file.fileno(), ZIP_HEADER_BYTES, begin + member.header_offset)
    lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    return member.header_offset + ZIP_HEADER_BYTES + lengths


class _Part(io.RawIOBase):
    """A part of a file as a file."""

    def __init__(self, file: FileIO, begin: int, length: int) -> None:
        self._file, self._begin, self._length, self._at = file, begin, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)[: max(0, self._length - self._at)]
        size = os.preadv(self._file.fileno(), [view], self._begin + self._at) if view else 0
        self._at += size
        return size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        return self._at

    def tell(self) -> int:
        return self._at


# -- the pickle of one tensor ------------------------------------------------------------------


DTYPES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
}
"""The class of a storage -> the type of its elements; newer types name theirs themselves."""


@dataclass(frozen=True)
class _Saved:
    """The arguments of the function that makes a tensor of a storage."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    is_in_order: bool
    """Whether its elements are the storage's first, in row-major order."""


class _Describer(pickle.Unpickler):
    """Describes a plain tensor and refuses all else; nothing of torch is called."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in of a class of torch.save's files. Raises an exception for any other."""
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_tensor_v3"):
            return _describe
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if module in ("torch", "torch.storage"):
            return name  # a storage's class, or a type
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, saved: Any) -> tuple[str, str]:
        _, kind, key, *_ = saved
        return DTYPES.get(kind, kind), key


def _described(data: bytes) -> _Saved:
    tensor = _Describer(io.BytesIO(data)).load()
    if not isinstance(tensor, _Saved):
        raise ValueError("not one tensor")
    return tensor


def _describe(
    storage: tuple[str, str],
    offset: int,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
    hooks: object,
    dtype: str | None = None,
    *_: Any,
) -> _Saved:
    kind, key = storage
    in_order, step = offset == 0, 1
    for size, has in zip(reversed(shape), reversed(stride), strict=True):
        in_order = in_order and (size == 1 or has == step)
        step *= size
    return _Saved(key, dtype or kind, tuple(shape), in_order)

"""Converts checkpoint files and folders: without a wrapper's prefix, as safetensors, or both."""

from __future__ import annotations

import copy
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from worker.checkpoints.copies import copy_bytes
from worker.checkpoints.names import is_archive, prefix_in, prefix_of
from worker.node.run_files import is_checkpoint_name

NO_PREFIX = "No prefix was found: the names are as they were saved."
LONGEST_HEADER = 100_000_000
"""Limit of the safetensors format in bytes."""
LONGEST_NAME_SEARCH_S = 60.0
_BUFFER_BYTES = 16 * 1024 * 1024


class CannotConvert(Exception):
    """The copy is impossible; the message says why in one sentence."""


@dataclass(frozen=True)
class Conversion:
    """A copy in another form that can be written."""

    size_bytes: int
    """Upper limit of the disk space that it needs."""
    write: Callable[[Path], Sequence[str]]
    """Overwrites an empty file; returns sentences about its content. Raises CannotConvert, OSError, RuntimeError."""


def conversion_of(source: Path, *, strip: bool, safetensors: bool) -> Conversion | str:
    """The copy to write; one sentence if the checkpoint already has that form.

    Raises CannotConvert, ValueError, OSError."""
    with source.open("rb") as file:
        is_folder = is_archive(file)
    if safetensors and is_folder:
        raise CannotConvert(
            "A folder cannot be converted to one safetensors file: its weights are files in the archive."
        )
    if safetensors:
        return _as_safetensors(source, strip)
    conversion = _folder_without_prefix(source) if is_folder else _file_without_prefix(source)
    return conversion or NO_PREFIX


def _as_safetensors(source: Path, strip: bool) -> Conversion | str:
    if (header := _safetensors_header(source)) is None:
        is_zip = _is_zip(source)
        from worker.checkpoints import torch_files

        return torch_files.as_safetensors(source, is_zip, strip=strip)
    if strip:
        return _with_shorter_header(source, header) or NO_PREFIX
    return "It was saved as safetensors and is unchanged."


def _file_without_prefix(source: Path) -> Conversion | None:
    if (header := _safetensors_header(source)) is not None:
        return _with_shorter_header(source, header)
    is_zip = _is_zip(source)
    from worker.checkpoints import torch_files

    return torch_files.without_prefix(source, is_zip)


# -- torch's files -----------------------------------------------------------------------------


def _is_zip(source: Path) -> bool:
    """Whether it has torch's current format. Raises ValueError if torch would not read it safely."""
    with source.open("rb") as file:
        head = file.read(16)
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        _require_protocol(head[1])
        return False
    if not head.startswith(b"PK\x03\x04"):
        raise ValueError("it is neither a torch nor a safetensors file")
    try:
        with zipfile.ZipFile(source) as archive:
            _require_torchs(archive)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise ValueError(f"its list of members is damaged ({error})") from error
    return True


def _require_torchs(archive: zipfile.ZipFile) -> None:
    members = archive.infolist()
    names = [member.filename for member in members]
    pickles = [name for name in names if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(set(names)) != len(names):
        raise ValueError("a name is in it twice")
    if len(pickles) != 1:
        raise ValueError("there is not exactly one data.pkl in it")
    if any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in members):
        raise ValueError("it is compressed or encrypted, which torch never does")
    order = pickles[0].replace("data.pkl", "byteorder")
    if order in names and _begin(archive, order) == b"bi":  # torch would swap the bytes in the file itself
        raise CannotConvert("It was written on a big-endian machine: download it as it was saved.")
    _require_protocol(int.from_bytes(_begin(archive, pickles[0])[1:]))


def _require_protocol(protocol: int) -> None:
    """Raises ValueError for those that torch's weights-only loader does not read."""
    if protocol > 3:
        raise ValueError(
            f"it was saved with pickle protocol {protocol}, and torch's weights-only loader reads 2 and 3; "
            "save it without pickle_protocol, or download it as it was saved"
        )


def _begin(archive: zipfile.ZipFile, name: str) -> bytes:
    """The first two bytes of a member, read without its checksum, which torch may have omitted."""
    assert archive.fp is not None
    archive.fp.seek(archive.getinfo(name).header_offset)
    header = archive.fp.read(30)
    archive.fp.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), 1)
    return archive.fp.read(2)


# -- safetensors -------------------------------------------------------------------------------


def _safetensors_header(source: Path) -> dict[str, Any] | None:
    """The header; None if the file is no safetensors file. Raises ValueError."""
    with source.open("rb") as file:
        head = file.read(9)
        if head[8:] != b"{":
            return None
        file.seek(8)
        text = file.read(min(_header_bytes(head), LONGEST_HEADER))
    if len(text) != _header_bytes(head):
        raise ValueError("its header is too long, or cut short")
    try:
        header: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("its header is not JSON") from None
    return header


def _header_bytes(head: bytes) -> int:
    return int.from_bytes(head[:8], "little")


def _with_shorter_header(source: Path, header: dict[str, Any]) -> Conversion | None:
    """A copy with a new header alone: the tensors' bytes stay, whatever library knows their types."""
    prefix = prefix_in(name for name in header if name != "__metadata__")
    if not prefix:
        return None
    with source.open("rb") as file:
        length = file.read(8)
    shorter = {name.removeprefix(prefix): about for name, about in header.items()}
    text = json.dumps(shorter, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")
    begin = length + text.ljust(_header_bytes(length))  # so that the tensors stay aligned
    if len(begin) != 8 + _header_bytes(length):
        raise CannotConvert("Its header would become longer, which no header of safetensors' own does.")
    note = f"Names lost their prefix {prefix}"
    return Conversion(source.stat().st_size, partial(_write_behind, begin, source, note))


def _write_behind(begin: bytes, source: Path, note: str, target: Path) -> list[str]:
    """Write the source with a different beginning of the same length."""
    with source.open("rb") as file, target.open("wb", buffering=0) as written:
        written.write(begin)
        size = os.fstat(file.fileno()).st_size - len(begin)
        if copy_bytes(file.fileno(), written.fileno(), size, len(begin), len(begin)) != size:
            raise CannotConvert("The checkpoint changed while it was read.")
    return [note]


# -- a folder ----------------------------------------------------------------------------------


def _folder_without_prefix(source: Path) -> Conversion | None:
    """A copy of the archive with its weight files and their index converted; unreadable files stay as they are."""
    prefix = prefix_of(source, LONGEST_NAME_SEARCH_S)
    if prefix is None:
        return None
    with tarfile.open(source, "r:") as archive:
        largest = max((member.size for member in archive if member.isreg()), default=0)
    return Conversion(source.stat().st_size + 2 * largest, partial(_write_folder, source, prefix))


def _write_folder(source: Path, prefix: str, target: Path) -> list[str]:
    options: dict[str, Any] = {"format": tarfile.GNU_FORMAT, "copybufsize": _BUFFER_BYTES}
    converted = 0
    with (
        source.open("rb") as opened,
        tarfile.open(fileobj=opened, mode="r:") as archive,
        tarfile.open(target, "w:", **options) as written,
    ):
        for member in archive:
            if member.isreg() and is_checkpoint_name(member.name.rpartition("/")[2]):
                converted += _add_weights(opened.fileno(), member, written, target)
            elif member.isreg() and member.name.endswith(".index.json"):
                _add_index(archive, member, written)
            else:
                written.addfile(member, archive.extractfile(member))
    return [f"Names in {converted} of its files lost their prefix {prefix}"]


def _add_weights(descriptor: int, member: tarfile.TarInfo, written: tarfile.TarFile, target: Path) -> bool:
    """Add a weight file by temporary files beside the target, because torch maps only files; True if converted."""
    saved, shorter = target.with_suffix(".saved"), target.with_suffix(".shorter")
    try:
        with saved.open("wb") as file:
            copy_bytes(descriptor, file.fileno(), member.size, since=member.offset_data)
        conversion = None
        with suppress(ValueError):
            conversion = _file_without_prefix(saved)
        if conversion is not None:
            conversion.write(shorter)
        with (shorter if conversion else saved).open("rb") as content:
            _add(member, content, written)
    finally:
        saved.unlink(missing_ok=True)
        shorter.unlink(missing_ok=True)
    return conversion is not None


def _add_index(archive: tarfile.TarFile, member: tarfile.TarInfo, written: tarfile.TarFile) -> None:
    """Add the index of which tensor is in which file. Raises CannotConvert."""
    content = archive.extractfile(member)
    assert content is not None
    try:
        index = json.load(content)
        prefix = prefix_in(index["weight_map"])
        index["weight_map"] = {name.removeprefix(prefix): file for name, file in index["weight_map"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CannotConvert("The list of its weights (.index.json) cannot be read.") from None
    _add(member, io.BytesIO(json.dumps(index, indent=2).encode(errors="surrogatepass")), written)


def _add(member: tarfile.TarInfo, content: BinaryIO, written: tarfile.TarFile) -> None:
    header = copy.copy(member)
    header.size = content.seek(0, os.SEEK_END)
    content.seek(0)
    written.addfile(header, content)

"""Converts checkpoint files and folders: without a wrapper's prefix, as safetensors, or both."""

from __future__ import annotations

import copy
import io
import json
import os
import tarfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from worker.checkpoints import torch_containers
from worker.checkpoints.converted_copy import CannotConvert, Conversion
from worker.checkpoints.copies import copy_bytes
from worker.checkpoints.names import is_archive, prefix_in, prefix_of
from worker.checkpoints.safetensors_files import header_of, with_shorter_header
from worker.node.run_files import is_checkpoint_name

NO_PREFIX = "No prefix was found: the names are as they were saved."
LONGEST_NAME_SEARCH_S = 60.0
_BUFFER_BYTES = 16 * 1024 * 1024


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
    if (header := header_of(source)) is None:
        is_zip = torch_containers.is_zip(source)
        from worker.checkpoints import torch_files

        return torch_files.as_safetensors(source, is_zip, strip=strip)
    if strip:
        return with_shorter_header(source, header) or NO_PREFIX
    return "It was saved as safetensors and is unchanged."


def _file_without_prefix(source: Path) -> Conversion | None:
    if (header := header_of(source)) is not None:
        return with_shorter_header(source, header)
    is_zip = torch_containers.is_zip(source)
    from worker.checkpoints import torch_files

    return torch_files.without_prefix(source, is_zip)


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

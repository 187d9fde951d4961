"""Checks the container of a file written by torch.save, before torch reads it."""

from __future__ import annotations

import zipfile
from pathlib import Path

from worker.checkpoints.converted_copy import CannotConvert


def is_zip(source: Path) -> bool:
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

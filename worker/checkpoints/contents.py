"""Reads the kinds of state in a copied checkpoint, by names alone: of its files, and in the outlines of its pickles."""

from __future__ import annotations

import io
import tarfile
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from domain.checkpoints.contents import CheckpointContents, Kind, in_order, kinds_by_rank, kinds_in, kinds_of_file
from domain.checkpoints.names import without_rank
from worker.checkpoints.names import LONGEST_S, is_archive, read_header, skip_legacy_header
from worker.checkpoints.outlines import LONGEST_BYTES, outline_of
from worker.node.regular_files import open_regular


def contents_of(copy: Path, name: str, layout: str = "file") -> CheckpointContents | None:
    """The kinds of state in a file, or in a folder's archive; None where nothing of it could be read.

    `name`: the checkpoint's name on the server; `layout`: the kind of folder."""
    give_up_at = time.thread_time() + LONGEST_S
    with suppress(OSError, MemoryError, tarfile.TarError), open_regular(copy) as file:
        by_file = _kinds_by_file(file, give_up_at) if is_archive(file) else {name: _kinds_of(file, name, give_up_at)}
        kinds = {path: own for path, own in by_file.items() if own}
        if kinds:
            present = set[Kind]().union(*kinds.values())
            return CheckpointContents(kinds=in_order(present), by_rank=in_order(kinds_by_rank(kinds)), layout=layout)
    return None


FIRST_BYTES = 1024 * 1024
"""Beginning of a file in which most pickles end."""
_PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".metadata")


def _kinds_by_file(archive_file: BinaryIO, give_up_at: float) -> dict[str, set[Kind]]:
    """The kinds of state in each file of an archive; of files that differ in their rank, the first one is read."""
    kinds, read = dict[str, set[Kind]](), dict[str, set[Kind]]()
    with tarfile.open(fileobj=archive_file, mode="r:") as archive:
        for member in archive:
            path = member.name.partition("/")[2]
            kinds[path] = kinds_of_file(path)
            label = without_rank(path)
            if kinds[path] - {"model"} or not path.endswith(_PICKLED) or not member.isreg():
                continue
            if label not in read and time.thread_time() < give_up_at:
                content = cast(BinaryIO, archive.extractfile(member))
                read[label] = _kinds_in_pickle(content, give_up_at)
            kinds[path] |= read.get(label, set())
    return kinds


def _kinds_of(file: BinaryIO, name: str, give_up_at: float) -> set[Kind]:
    """The kinds of state in one file."""
    if read_header(file):
        return kinds_of_file(name)
    file.seek(0)
    return _kinds_in_pickle(file, give_up_at)


def _kinds_in_pickle(file: BinaryIO, give_up_at: float) -> set[Kind]:
    """The kinds in a file of torch.save or a plain pickle; none where it is of another format, damaged or too long."""
    for most_bytes in (FIRST_BYTES, LONGEST_BYTES):
        file.seek(0)
        head = io.BytesIO(file.read(most_bytes))
        with suppress(ValueError, RecursionError):
            return kinds_in(_outline(head, give_up_at))
        if len(head.getvalue()) < most_bytes:
            break
    return set()


def _outline(head: io.BytesIO, give_up_at: float) -> object:
    """Raises ValueError."""
    first = head.getvalue()[:30]
    if first.startswith(b"PK\x03\x04"):  # torch writes data.pkl first
        head.seek(30 + int.from_bytes(first[26:28], "little") + int.from_bytes(first[28:30], "little"))
    else:
        skip_legacy_header(head)
    return outline_of(head, give_up_at)

"""Write runs as an archive while it is sent: a zip file of plain parts, each with its digest in the manifest."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from dashboard.archives.manifest import MANIFEST, ArchivedFile, Manifest, run_file, snapshot_file
from dashboard.errors import Rejection
from dashboard.exports.pipe import Pipe
from dashboard.service.service import Service
from dashboard.storage.files import Files
from db.archives.documents import RunDocument, run_document
from db.checkpoints import checkpoint_queries
from db.metrics.points import pages_of_series
from db.models import Checkpoint
from db.models.base import dump_json

PIECE_BYTES = 1024 * 1024


def archive(service: Service, run_ids: Sequence[str], with_checkpoints: bool = True) -> Iterator[bytes]:
    """Return the pieces of an archive of ended runs. Raises NoSuchRun, WrongState, Rejection before the first."""
    documents = [run_document(service.store, run_id, with_checkpoints) for run_id in run_ids]
    for document in documents:
        _require_code(service, document)
    return _Writer(service).pieces(documents)


def _require_code(service: Service, document: RunDocument) -> None:
    if document.snapshot and service.snapshots.find(document.snapshot["sha256"]) is None:
        raise Rejection(410, f"The code of run {document.run['id']} is gone from the server's files.")


class _Writer:
    """One archive on its way to a client."""

    def __init__(self, service: Service) -> None:
        self._service, self._pipe = service, Pipe()
        self._zip = zipfile.ZipFile(self._pipe, "w", allowZip64=True)
        self._manifest = Manifest(runs=[], files={})

    def pieces(self, documents: Iterable[RunDocument]) -> Iterator[bytes]:
        """Yield the bytes of the whole archive."""
        for document in documents:
            yield from self._run(document)
            self._manifest.runs.append(document.run["id"])
        yield from self._add(MANIFEST, [self._manifest.model_dump_json(indent=1).encode()])
        self._zip.close()
        yield self._pipe.take()

    def _run(self, document: RunDocument) -> Iterator[bytes]:
        name = partial(run_file, document.run["id"])
        if document.snapshot:
            yield from self._snapshot(document.snapshot["sha256"])
        for attempt in document.attempts:
            for series in attempt.series:
                chunks = pages_of_series(self._service.store, series["id"])
                yield from self._add(name("series", series["id"]), map(b"".join, chunks))
            for file in attempt.files:
                yield from self._file(name, file["id"], file["size_bytes"])
                file["size_bytes"] = self._manifest.files[name("files", file["id"])].size_bytes
            for checkpoint in attempt.checkpoints:
                yield from self._checkpoint(name("checkpoints", checkpoint["id"]), checkpoint["id"])
        yield from self._add(name("run.json"), [dump_json(document.model_dump()).encode()])

    def _snapshot(self, sha256: str) -> Iterator[bytes]:
        if snapshot_file(sha256) not in self._manifest.files:
            yield from self._add(snapshot_file(sha256), _read(self._service.snapshots.path(sha256)))

    def _file(self, name: partial[str], file_id: int, size_bytes: int) -> Iterator[bytes]:
        files = self._service.files
        yield from self._add(name("files", file_id), _mirrored(files, file_id, size_bytes))
        if files.arrivals(file_id).exists():
            yield from self._add(name("files", f"{file_id}.times"), _read(files.arrivals(file_id)))

    def _checkpoint(self, name: str, checkpoint_id: int) -> Iterator[bytes]:
        row = checkpoint_queries.checkpoint_file(self._service.store, checkpoint_id)
        if row is None:
            raise Rejection(404, f"Checkpoint {checkpoint_id} was deleted while it was exported.")
        checkpoint, _ = row
        with (
            tempfile.TemporaryDirectory(dir=self._service.files.incoming) as folder,
            self._service.storages.as_file(checkpoint, Path(folder)) as path,
        ):
            yield from self._add(name, _read(path), zipfile.ZIP_STORED)
        self._verify(checkpoint, name)

    def _verify(self, checkpoint: Checkpoint, name: str) -> None:
        """Check a checkpoint that was read. Raises Rejection, which ends the answer before it is whole."""
        if self._manifest.files[name].sha256 != checkpoint.sha256:
            raise Rejection(410, f"Checkpoint {checkpoint.path} is damaged: its SHA-256 has changed.")

    def _add(self, name: str, content: Iterable[bytes], compression: int = zipfile.ZIP_DEFLATED) -> Iterator[bytes]:
        info = zipfile.ZipInfo(name)  # with the same date in every archive
        info.compress_type, info.external_attr = compression, 0o600 << 16
        hashing, size_bytes = hashlib.sha256(), 0
        with self._zip.open(info, "w", force_zip64=True) as member:
            for piece in content:
                member.write(piece)
                hashing.update(piece)
                size_bytes += len(piece)
                if zip_bytes := self._pipe.take():
                    yield zip_bytes
        if name != MANIFEST:
            self._manifest.files[name] = ArchivedFile(size_bytes=size_bytes, sha256=hashing.hexdigest())


def _read(path: Path) -> Iterator[bytes]:
    """Yield a file's bytes."""
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _mirrored(files: Files, file_id: int, size_bytes: int) -> Iterator[bytes]:
    """Yield the first bytes of a log or event file; none where it is missing, because an empty log has no file."""
    offset = 0
    while piece := files.read(file_id, offset, min(PIECE_BYTES, size_bytes - offset)):
        offset += len(piece)
        yield piece

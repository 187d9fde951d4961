"""Import the runs of an archive: their rows, points, files, checkpoints and code."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dashboard.archives.manifest import CHUNK_BYTES, run_file, snapshot_file
from dashboard.archives.reading import UnpackedArchive, unpack
from dashboard.errors import describe
from dashboard.service.service import Service
from dashboard.snapshots.origin import Origin
from db.archives.documents import RunDocument
from db.archives.restore import ArchiveSource, is_imported, restore
from domain.errors import InvalidRequest
from domain.spec import RunSpec

log = logging.getLogger("rankzero")


def import_archive(service: Service, path: Path, folder: Path, source: str) -> list[dict[str, Any]]:
    """Import an archive by way of an empty folder; return `id`, `name`, `series`, `points` and `is_new` of its runs.

    `source`: the machine and path it comes from. A run that was imported from it before stays. Each run is imported
    whole or not at all. Raises Rejection, InvalidRequest, WrongState."""
    archive = unpack(path, folder, service.files.require_free_space)
    documents = [archive.document(run_id) for run_id in archive.manifest.runs]
    imported = []
    for document in documents:
        origin = ArchiveSource(source, archive.digest(document.run["id"]))
        is_new = not is_imported(service.store, origin.digest)
        if is_new:
            _import_valid(service, archive, document, origin)
        imported.append(_summary(document) | {"is_new": is_new})
    return imported


def _import_valid(service: Service, archive: UnpackedArchive, document: RunDocument, origin: ArchiveSource) -> None:
    try:
        _import_run(service, archive, document, origin)
    except ValidationError as error:
        _, problem = describe(error.errors())
        raise InvalidRequest("archive", f"The archive was not imported: {problem}") from None
    log.info("run %s imported from an archive", document.run["id"])
    service.run_changed(document.run["id"])


def _summary(document: RunDocument) -> dict[str, Any]:
    series = [row for attempt in document.attempts for row in attempt.series]
    points = sum(row["count"] for row in series)
    return {"id": document.run["id"], "name": document.run["name"], "series": len(series), "points": points}


def _import_run(service: Service, archive: UnpackedArchive, document: RunDocument, origin: ArchiveSource) -> None:
    run_id = str(document.run["id"])
    _keep_code(service, archive, document)
    content = _RunBytes(service, archive, run_id)
    try:
        restore(service.store, document, content, origin, service.clock)
    except BaseException:
        content.remove_moved()
        raise


def _keep_code(service: Service, archive: UnpackedArchive, document: RunDocument) -> None:
    """Store the snapshot of the run's code, which stays for an hour if the run is not imported."""
    sha256 = RunSpec.model_validate(document.run.get("spec")).snapshot
    if sha256 is None or service.snapshots.hold(sha256) is not None:
        return
    name = snapshot_file(sha256)
    if name not in archive.paths or archive.manifest.files[name].sha256 != sha256:
        raise InvalidRequest("archive", f"The archive was not imported: the code {sha256[:12]} is not in it.")
    service.snapshots.accept(archive.paths[name], sha256)
    origin = Origin.model_validate((document.snapshot or {}).get("origin"))
    service.snapshots.set_origin(sha256, origin)


class _RunBytes:
    """The unpacked files of one run, on their way to their places."""

    def __init__(self, service: Service, archive: UnpackedArchive, run_id: str) -> None:
        self._service, self._archive, self._run_id = service, archive, run_id
        self._file_ids: list[int] = []
        self._checkpoint_ids: list[int] = []

    def chunks(self, series_id: int) -> Iterator[bytes]:
        """Yield the packed chunks of a series. Raises InvalidRequest."""
        with self._path("series", series_id).open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                if len(chunk) % 24:
                    raise InvalidRequest("archive", "The archive was not imported: a series in it is cut off.")
                yield chunk

    def move_file(self, archived_id: int, file_id: int, size_bytes: int) -> None:
        """Move a mirrored file of this size to its place. Raises InvalidRequest."""
        path = self._path("files", archived_id)
        self._require_size(path, size_bytes)
        self._file_ids.append(file_id)
        path.replace(self._service.files.mirrored(file_id))
        if times := self._archive.paths.get(run_file(self._run_id, "files", f"{archived_id}.times")):
            times.replace(self._service.files.arrivals(file_id))

    def move_checkpoint(self, archived_id: int, checkpoint_id: int, sha256: str, size_bytes: int) -> None:
        """Move a checkpoint with this digest and size to its place. Raises InvalidRequest."""
        path = self._path("checkpoints", archived_id)
        self._require_size(path, size_bytes)
        name = run_file(self._run_id, "checkpoints", archived_id)
        if self._archive.manifest.files[name].sha256 != sha256:
            raise InvalidRequest("archive", "The archive was not imported: a checkpoint in it is another one.")
        self._checkpoint_ids.append(checkpoint_id)
        path.replace(self._service.files.checkpoint(checkpoint_id))

    def remove_moved(self) -> None:
        """Delete what was moved for a run that is not stored after all."""
        self._service.files.remove(self._file_ids, self._checkpoint_ids)

    def _path(self, *names: object) -> Path:
        path = self._archive.paths.get(run_file(self._run_id, *names))
        if path is None or not path.exists():
            raise InvalidRequest("archive", f"The archive was not imported: {'/'.join(map(str, names))} is not in it.")
        return path

    def _require_size(self, path: Path, size_bytes: int) -> None:
        if path.stat().st_size != size_bytes:
            raise InvalidRequest("archive", "The archive was not imported: a file in it has another size.")

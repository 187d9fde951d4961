"""Read an archive as what it is, a stranger's file, and import its runs: rows, points, files, checkpoints and code."""

from __future__ import annotations

import hashlib
import logging
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from dashboard.archives.manifest import (
    CHUNK_BYTES,
    FORMAT,
    MANIFEST,
    VERSION,
    ArchivedFile,
    Manifest,
    run_file,
    snapshot_file,
)
from dashboard.errors import describe
from dashboard.service.service import Service
from dashboard.snapshots.origin import Origin
from db.archives.documents import RunDocument
from db.archives.restore import ArchiveSource, id_here, imported_before, restore
from db.people.ownership import DEFAULT_PROJECT
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest
from domain.spec import RunEdit, RunSpec
from domain.text import formats


def import_archive(service: Service, path: Path, folder: Path, source: str) -> list[dict[str, Any]]:
    """Import an archive by way of an empty folder; return `id`, `name`, `series`, `points` and `is_new` of its runs.

    `source`: the machine and path it comes from. A run that was imported from it before stays. Each run is imported
    whole or not at all. Raises Rejection, InvalidRequest, WrongState, Denied."""
    archive = unpack(path, folder, service.files.require_free_space)
    documents = [_labelled(archive.document(run_id)) for run_id in archive.manifest.runs]
    for document in documents:
        service.references.check_project(Action.ADD, document.run["project"])
    return [_imported(service, archive, document, source) for document in documents]


log = logging.getLogger("rankzero")


def _labelled(document: RunDocument) -> RunDocument:
    """Return the document with name, project and tags as an edit of the run would have them. Raises InvalidRequest."""
    name, project = document.run.get("name"), document.run.get("project", DEFAULT_PROJECT)
    with _refusing_invalid():
        labels = RunEdit.model_validate({"name": name, "project": project, "add_tags": document.tags})
    run = document.run | {"name": labels.name, "project": labels.project}
    return document.model_copy(update={"run": run, "tags": labels.add_tags})


@contextmanager
def _refusing_invalid() -> Iterator[None]:
    """Say in a sentence what of an archive does not follow the rules. Raises InvalidRequest."""
    try:
        yield
    except ValidationError as error:
        _, problem = describe(error.errors())
        raise InvalidRequest("archive", f"The archive was not imported: {problem}") from None


def _imported(service: Service, archive: UnpackedArchive, document: RunDocument, source: str) -> dict[str, Any]:
    """Import a run, unless it was before; return what is told of it."""
    origin = ArchiveSource(source, archive.digest(document.run["id"]))
    before = imported_before(service.store, origin.digest)
    run_id = before or id_here(str(document.run["id"]))
    if before is None:
        _import_valid(service, archive, run_id, document, origin)
    series = [row for attempt in document.attempts for row in attempt.series]
    points = sum(row["count"] for row in series)
    summary = {"id": run_id, "name": document.run["name"], "series": len(series), "points": points}
    return summary | {"is_new": before is None}


def _import_valid(
    service: Service, archive: UnpackedArchive, run_id: str, document: RunDocument, origin: ArchiveSource
) -> None:
    with _refusing_invalid():
        _import_run(service, archive, run_id, document, origin)
    log.info("run %s imported from an archive", run_id)
    service.run_changed(run_id)


def _import_run(
    service: Service, archive: UnpackedArchive, run_id: str, document: RunDocument, origin: ArchiveSource
) -> None:
    _keep_code(service, archive, document)
    content = _RunBytes(service, archive, str(document.run["id"]))
    try:
        restore(service.store, run_id, document, content, origin, service.clock)
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


# Read an archive as what it is, a stranger's file: sizes, names and digests are checked before anything is used.

Model = TypeVar("Model", bound=BaseModel)
PIECE_BYTES = 1024 * 1024
MOST_FILES = 200_000
MOST_JSON_BYTES = 64 * PIECE_BYTES
MOST_RATIO = 100
"""How many times its own size an archive may unpack to: points take a tenth to a thirtieth, zeros a thousandth."""
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError, ValueError)
"""Raised by zipfile for archives that are damaged, encrypted or packed by unknown means."""


@dataclass(frozen=True)
class UnpackedArchive:
    """An archive whose files are verified and lie in a folder, under numbers in place of their names."""

    manifest: Manifest
    paths: dict[str, Path]

    def document(self, run_id: str) -> RunDocument:
        """Return the document of one of the archive's runs. Raises InvalidRequest."""
        path = self.paths.get(run_file(run_id, "run.json"))
        if path is None or path.stat().st_size > MOST_JSON_BYTES:
            raise _refused(f"the document of run {run_id} is missing or too large")
        document = _parsed(RunDocument, path.read_bytes(), f"the document of run {run_id}")
        if document.run.get("id") != run_id:
            raise _refused(f"the document of run {run_id} is another run's")
        return document

    def digest(self, run_id: str) -> str:
        """Return the SHA-256 of everything of one run: of the names and digests of its files."""
        prefix = run_file(run_id, "")
        lines = [f"{file.sha256} {name}\n" for name, file in sorted(self.manifest.files.items())
                 if name.startswith(prefix)]  # fmt: skip
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def unpack(archive: Path, folder: Path, require_space: Callable[[int], None]) -> UnpackedArchive:
    """Verify an archive and unpack it into an empty folder.

    Names in the archive never become names on the disk. Raises InvalidRequest, and what `require_space` raises."""
    try:
        with zipfile.ZipFile(archive) as opened:
            manifest = _manifest(opened)
            require_space(sum(file.size_bytes for file in manifest.files.values()))
            paths, left_bytes = {}, MOST_JSON_BYTES + MOST_RATIO * archive.stat().st_size
            for number, (name, file) in enumerate(manifest.files.items()):
                left_bytes -= file.size_bytes
                if left_bytes < 0:
                    raise _refused(f"it unpacks to more than {MOST_RATIO} times its own size")
                paths[name] = folder / str(number)
                _unpack_member(opened, name, file, paths[name])
            return UnpackedArchive(manifest, paths)
    except _BROKEN as error:
        raise _refused(f"it cannot be read ({error or type(error).__name__})") from error


def _manifest(opened: zipfile.ZipFile) -> Manifest:
    names = opened.namelist()
    if MANIFEST not in names:
        raise _refused("it has no manifest.json, so it is no archive of runs")
    if len(names) > MOST_FILES:
        raise _refused(f"it has {len(names)} files; at most {MOST_FILES} are read")
    manifest = _checked_manifest(_read_small(opened, MANIFEST))
    if sorted(names) != sorted([MANIFEST, *manifest.files]):
        raise _refused("its files are not those of its manifest")
    return manifest


def _checked_manifest(content: bytes) -> Manifest:
    header = _parsed(_Header, content, MANIFEST)
    if header.format != FORMAT:
        raise _refused(f"it is a file of the format {header.format[:60]!r}, not {FORMAT}")
    if header.version != VERSION:
        raise _refused(
            f"it has version {header.version} of the format and this installation reads {VERSION}; "
            "import it with the Rankzero that wrote it, or a newer one"
        )
    return _parsed(Manifest, content, MANIFEST)


class _Header(BaseModel):
    """The two fields that every version of the manifest has."""

    format: str
    version: int


def _read_small(opened: zipfile.ZipFile, name: str) -> bytes:
    with opened.open(name) as member:
        content = member.read(MOST_JSON_BYTES + 1)
    if len(content) > MOST_JSON_BYTES:
        raise _refused(f"{name} is larger than {formats.size(MOST_JSON_BYTES)}")
    return content


def _unpack_member(opened: zipfile.ZipFile, name: str, file: ArchivedFile, path: Path) -> None:
    """Write one file, never more than its manifest promises, and compare its digest."""
    hashing, left = hashlib.sha256(), file.size_bytes
    with opened.open(name) as member, path.open("xb") as target:
        while left >= 0 and (piece := member.read(PIECE_BYTES)):
            left -= len(piece)
            hashing.update(piece)
            target.write(piece)
    if left != 0 or hashing.hexdigest() != file.sha256:
        raise _refused(f"the size or SHA-256 of {name[:200]!r} in it is not the manifest's, so it is damaged")


def _parsed(model: type[Model], content: bytes, subject: str) -> Model:
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        location = ".".join(map(str, problem["loc"]))
        raise _refused(f"{subject} is not valid ({location}: {problem['msg']})") from None


def _refused(problem: str) -> InvalidRequest:
    return InvalidRequest("archive", f"The archive was not imported: {problem}.")

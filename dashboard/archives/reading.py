"""Read an archive as what it is, a stranger's file: sizes, names and digests are checked before anything is used."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from dashboard.archives.manifest import FORMAT, MANIFEST, VERSION, ArchivedFile, Manifest, run_file
from db.archives.documents import RunDocument
from domain.errors import InvalidRequest
from domain.text import formats

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

"""Brings data from one source: what version of it is there now, and its files."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import secrets
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from domain.clock import Clock
from domain.environments.sources import Source
from domain.masking.masking import masked_text
from domain.text.formats import plural
from worker.environments.uv import IsStopped, Stopped, program, run

PIECE_BYTES = 1024 * 1024
TRIES = 4
TIMEOUT = httpx2.Timeout(60.0, connect=10.0)
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10"
"""It asks no questions: a worker has no terminal."""
BAD_ARCHIVES = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, RuntimeError)
"""What unpacking raises for damaged and encrypted archives."""
Progress = Callable[[int, int | None], None]
"""(bytes so far, bytes in all or None)"""


class CannotBring(Exception):
    """A source cannot be read; the message says why, without the source's secrets."""


def version(source: Source, env: Mapping[str, str], log: Path, is_stopped: IsStopped) -> str:
    """Return a text that changes when the data there does.

    Raises CannotBring, ProgramFailed, ProgramMissing, Stopped."""
    if source.sha256:
        return source.sha256
    if source.kind == "http":
        return _http_version(source)
    if source.kind == "s3":
        return json.dumps([[key, size, tag] for key, size, tag in _objects(source)])
    if source.kind == "ssh":
        listing = ["rsync", "-rL", "--list-only", "-e", SSH, "--", source.address]
        return run([program("rsync"), *listing[1:]], env, log.parent, log, is_stopped)
    path = Path(source.address)
    if not path.exists():
        raise CannotBring(f"{path} does not exist")
    return json.dumps([[name, s.st_size, s.st_mtime_ns] for name, s in _walked(path)])


def bring(
    source: Source,
    target: Path,
    env: Mapping[str, str],
    log: Path,
    is_stopped: IsStopped,
    progress: Progress,
    clock: Clock,
) -> None:
    """Make `target`, a file or folder, from the source.

    Raises CannotBring, ProgramFailed, ProgramMissing, Stopped, OSError."""
    if source.kind == "path":
        _copy(Path(source.address), target, is_stopped, progress)
    elif source.kind == "ssh":
        _rsync(source, target, env, log, is_stopped, progress, clock)
    elif source.kind == "s3":
        _from_bucket(source, target, is_stopped, progress)
    else:
        _download(source, target, is_stopped, progress, clock)
    if source.is_archive and target.is_file():
        packed = target.with_name(f"packed-{source.file_name}")
        target.rename(packed)
        _unpack(packed, target)
        packed.unlink()


def files_of(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield each file below a path by its name there, in order; a path that is a file itself has the name ""."""
    if folder.is_file():
        yield "", folder
        return
    for parent, folders, names in os.walk(folder, followlinks=True):
        here = Path(parent).resolve()
        folders[:] = sorted(name for name in folders if not here.is_relative_to(Path(parent, name).resolve()))
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file():
                yield str(path.relative_to(folder)), path


def digest(folder: Path, is_stopped: IsStopped) -> tuple[str, dict[str, int]]:
    """Return the SHA-256 over names and contents of all files below a path, and their sizes by name. Raises Stopped."""
    whole, sizes = hashlib.sha256(), dict[str, int]()
    for name, path in files_of(folder):
        if is_stopped():
            raise Stopped
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        sizes[name] = path.stat().st_size
        whole.update(f"{name}\0{content}\n".encode(errors="surrogateescape"))
    return whole.hexdigest(), sizes


def _walked(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    for name, file in files_of(path):
        yield name, file.stat()


def _http_version(source: Source) -> str:
    """Return what distinguishes the data there from others; a text of its own each time where the server does not say.

    It is asked as for a download: signed addresses allow nothing else."""
    try:
        with _http() as http, http.stream("GET", source.address) as response:
            response.raise_for_status()
    except httpx2.HTTPError as error:
        raise CannotBring(_http_words(error)) from error
    names = ("etag", "last-modified", "content-length")
    validators = [response.headers.get(name, "") for name in names]
    return json.dumps(validators if any(validators[:2]) else [*validators, secrets.token_hex(8)])


def _http() -> httpx2.Client:
    return httpx2.Client(
        timeout=TIMEOUT, follow_redirects=True, trust_env=True, headers={"Accept-Encoding": "identity"}
    )


def _download(source: Source, target: Path, is_stopped: IsStopped, progress: Progress, clock: Clock) -> None:
    """Download a file; a broken download resumes. Raises CannotBring, Stopped."""
    version_headers = dict[str, str]()
    for count in range(TRIES):
        try:
            _download_rest(source, target, version_headers, is_stopped, progress)
            break
        except httpx2.HTTPError as error:
            is_final = isinstance(error, httpx2.HTTPStatusError) and error.response.status_code < 500
            if is_final or count == TRIES - 1:
                raise CannotBring(_http_words(error)) from error
            clock.pause(2**count)
    if source.sha256:
        with target.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if sha256 != source.sha256:
            raise CannotBring(f"its SHA-256 is {sha256}, not {source.sha256}")


def _download_rest(
    source: Source, target: Path, version_headers: dict[str, str], is_stopped: IsStopped, progress: Progress
) -> None:
    """Download what is left; `version_headers` holds between tries by what the rest is that of the same file."""
    offset = target.stat().st_size if target.exists() and version_headers else 0
    headers = {"Range": f"bytes={offset}-", **version_headers} if offset else {}
    with _http() as http, http.stream("GET", source.address, headers=headers) as response:
        if response.status_code == 416:
            return
        response.raise_for_status()
        is_rest = response.status_code == 206
        etag, date = response.headers.get("etag", ""), response.headers.get("last-modified", "")
        if validator := etag if etag.startswith('"') else date:
            version_headers["If-Range"] = validator
        received_bytes = offset if is_rest else 0
        length = response.headers.get("content-length", "")
        total = received_bytes + int(length) if length.isdigit() else None
        with target.open("ab" if is_rest else "wb") as file:
            for piece in response.iter_bytes(PIECE_BYTES):
                if is_stopped():
                    raise Stopped
                file.write(piece)
                received_bytes += len(piece)
                progress(received_bytes, total)
        if total is not None and received_bytes < total:
            raise httpx2.ReadError("it broke off")


def _http_words(error: httpx2.HTTPError) -> str:
    if isinstance(error, httpx2.HTTPStatusError):
        return f"the server answered {error.response.status_code} {error.response.reason_phrase}".strip()
    return masked_text(str(error) or type(error).__name__)


def _copy(source: Path, target: Path, is_stopped: IsStopped, progress: Progress) -> None:
    copied_bytes = 0
    if not source.exists():
        raise CannotBring(f"{source} does not exist")
    for name, file in files_of(source):
        if is_stopped():
            raise Stopped
        place = target / name if name else target
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
        copied_bytes += file.stat().st_size
        progress(copied_bytes, None)
    if source.is_dir():
        target.mkdir(exist_ok=True)


def _rsync(
    source: Source,
    target: Path,
    env: Mapping[str, str],
    log: Path,
    is_stopped: IsStopped,
    progress: Progress,
    clock: Clock,
) -> None:
    """Copy over the person's ssh; a folder with all it holds, a file as `target`."""
    argv = [program("rsync"), "-rLt", "--partial", "-e", SSH, "--", source.address]
    arriving = target.with_name(f"{target.name}.rsync")
    arriving.mkdir()
    argv.append(f"{arriving}/")
    measured_at = clock.now()

    def is_stopped_meanwhile() -> bool:
        """Whether the attempt was stopped; reports each second how much is on the disk: rsync says too little."""
        nonlocal measured_at
        if clock.now() - measured_at >= 1:
            progress(_bytes_below(arriving), None)
            measured_at = clock.now()
        return is_stopped()

    run(argv, env, log.parent, log, is_stopped_meanwhile, clock=clock)
    files = [arriving] if source.address.endswith("/") else [*arriving.iterdir()]
    if len(files) != 1:
        raise CannotBring(f"it names {plural(len(files), 'file')}: stage the folder that holds them")
    files[0].rename(target)
    if arriving.exists():
        arriving.rmdir()


def _bytes_below(folder: Path) -> int:
    total = 0
    for _, path in files_of(folder):
        with suppress(OSError):  # rsync renames them meanwhile
            total += path.stat().st_size
    return total


def _bucket() -> Any:
    """Return the client of the server that the usual AWS_* variables name. Raises CannotBring."""
    try:
        from botocore.session import get_session
    except ImportError:
        raise CannotBring("buckets need botocore in the worker's environment: pip install botocore") from None
    session = get_session()
    return session.create_client("s3", region_name=session.get_config_variable("region") or "us-east-1")


def _objects(source: Source) -> list[tuple[str, int, str]]:
    """Return (key, bytes, ETag) of the object that the address names, or of all below it. Raises CannotBring."""
    bucket, prefix = urlsplit(source.address).netloc, urlsplit(source.address).path.lstrip("/")
    try:
        pages = _bucket().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        objects = [
            (item["Key"], int(item["Size"]), str(item["ETag"])) for page in pages for item in page.get("Contents", [])
        ]
    except CannotBring:
        raise
    except Exception as error:  # botocore's errors have no common class that is imported without it
        raise CannotBring(masked_text(str(error))) from error
    own = prefix.rstrip("/")
    chosen = [item for item in objects if item[0] == own] or [
        item for item in objects if item[0].startswith(f"{own}/" if own else "") and not item[0].endswith("/")
    ]
    if not chosen:
        raise CannotBring("there is nothing at this address")
    return chosen


def _from_bucket(source: Source, target: Path, is_stopped: IsStopped, progress: Progress) -> None:
    objects, client = _objects(source), _bucket()
    bucket, prefix = urlsplit(source.address).netloc, urlsplit(source.address).path.strip("/")
    total, received_bytes = sum(size for _, size, _ in objects), 0
    for key, size, tag in objects:
        name = key[len(prefix) :].lstrip("/")
        if ".." in Path(name).parts:
            raise CannotBring(f"the object {key!r} has no usable name")
        place = target / name if name else target
        place.parent.mkdir(parents=True, exist_ok=True)
        body = client.get_object(Bucket=bucket, Key=key, IfMatch=tag)["Body"]
        with place.open("wb") as file:
            while piece := body.read(PIECE_BYTES):
                if is_stopped():
                    raise Stopped
                file.write(piece)
                received_bytes += len(piece)
                progress(received_bytes, total)
        if place.stat().st_size != size:
            raise CannotBring(f"the download of {key} broke off")


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack what stays inside the folder. Raises CannotBring."""
    folder.mkdir()
    try:
        if archive.name.endswith(".zip"):
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(folder)  # nosec B202: leaves out `..` and absolute paths by itself
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
    except BAD_ARCHIVES as error:
        raise CannotBring(f"the archive cannot be unpacked ({error})") from error

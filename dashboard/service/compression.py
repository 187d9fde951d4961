"""The compression of logs and event files of ended runs: in small steps, and whole at each moment."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from dashboard.private_files import sync_folder
from dashboard.settings import DAY_S
from dashboard.storage.compressed import compressed_path, content_bytes, pack, partial_path, verify
from dashboard.storage.files import Files
from db.engine import Store
from db.tasks import compressed_files
from db.tasks.compressed_files import EndedFile

log = logging.getLogger("rankzero")
STEP_BYTES = 2 * 1024 * 1024
"""Content read in one turn, about a tenth of a second's work."""
LOOK_EVERY_S = 3600.0
"""Pause between two looks for files, once all were looked at."""


class Compression:
    """The compression of one store's files; call `sweep` from one thread."""

    def __init__(self, store: Store, files: Files, clock: Callable[[], float]) -> None:
        self._store, self._files, self._clock = store, files, clock
        self._work: Iterator[int] | None = None
        self._last_id, self._look_from = 0, 0.0

    def sweep(self) -> None:
        """Do the next step; a file that cannot be read or written is left as it is."""
        if self._work is None and self._clock() >= self._look_from:
            self._work = self._next()
        if self._work is not None:
            try:
                self._step(self._work)
            except OSError as error:
                self._work = None
                log.warning("file %d was not compressed: %s", self._last_id, error)

    def _step(self, work: Iterator[int]) -> None:
        left_bytes = STEP_BYTES
        while left_bytes > 0:
            if (size_bytes := next(work, None)) is None:
                self._work = None
                return
            left_bytes -= size_bytes

    def _next(self) -> Iterator[int] | None:
        now = self._clock()
        file = compressed_files.next_ended(self._store, self._last_id, now - DAY_S)
        if file is None:
            self._last_id, self._look_from = 0, now + LOOK_EVERY_S
            return None
        self._last_id = file.id
        if self._files.free_bytes() < file.size_bytes:  # until the next look; smaller ones behind it make room
            return None
        return self._compress(file, self._files.mirrored(file.id))

    def _compress(self, file: EndedFile, path: Path) -> Iterator[int]:
        partial = partial_path(path)
        if not path.exists():
            self._find_again(file, path)
            return
        with ExitStack() as stack:
            source = stack.enter_context(path.open("rb"))
            partial.unlink(missing_ok=True)
            stack.callback(partial.unlink, missing_ok=True)
            descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            target = stack.enter_context(os.fdopen(descriptor, "w+b"))
            yield from pack(source, target, file.size_bytes)
            if os.fstat(descriptor).st_size * 10 > file.size_bytes * 9:
                compressed_files.compressed(self._store, file, 0)
                return
            yield from verify(source, target, file.size_bytes)
            self._replace(file, path, target)

    def _replace(self, file: EndedFile, path: Path, target: BinaryIO) -> None:
        """Put the compressed form into the file's place, unless it has changed.

        The row comes last: what is interrupted before it is found again (`_find_again`), and no file stays twice."""
        status, partial = os.fstat(target.fileno()), partial_path(path)
        with self._alone(file):
            is_own = os.path.samestat(status, partial.stat())  # and not that of another dashboard
            if is_own and compressed_files.is_unchanged(self._store, file):
                partial.rename(compressed_path(path))
                sync_folder(path.parent)
                path.unlink(missing_ok=True)
                self._record(file, path, status.st_size)

    def _find_again(self, file: EndedFile, path: Path) -> None:
        """Record a file that was compressed before a crash, or before the store was restored."""
        with self._alone(file), suppress(FileNotFoundError):
            compressed_bytes = compressed_path(path).stat().st_size
            if compressed_files.is_unchanged(self._store, file) and content_bytes(path) >= file.size_bytes:
                self._record(file, path, compressed_bytes)

    def _record(self, file: EndedFile, path: Path, compressed_bytes: int) -> None:
        if not compressed_files.compressed(self._store, file, compressed_bytes):
            compressed_path(path).unlink(missing_ok=True)  # its run was erased meanwhile

    @contextmanager
    def _alone(self, file: EndedFile) -> Iterator[None]:
        """Hold the locks under which bytes of the file arrive."""
        with self._files.locked(file.stream), self._store.alone(f"file {tuple(file.stream)}"):
            yield

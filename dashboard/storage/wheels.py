"""The wheels that the server hands on, and the resolved locks: files by content that nodes or a person put there."""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dashboard.errors import Rejection
from dashboard.private_files import make_private_directory
from domain.clock import SYSTEM_CLOCK, Clock
from domain.environments.wheels import WheelFile, is_file_name, is_named

KEPT_S = 30 * 24 * 3600.0
"""A wheel that a node brought and nobody took for so long is deleted."""
MOST_LOCK_BYTES, _BLOCK_BYTES = 64 * 1024**2, 4096
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KEY = re.compile(r"[0-9a-f]{16}")


class Wheels:
    """The folder `wheels`: what a person puts there lies at its top, what nodes bring below `nodes/SHA256/NAME`."""

    def __init__(self, root: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self.root, self._clock = root, clock
        self._uploaded, self._locks, self._arriving = root / "nodes", root / "locks", root / "arriving"
        self._digests: dict[tuple[str, int, float], str] = {}
        for folder in (root, self._uploaded, self._locks):
            make_private_directory(folder)
        shutil.rmtree(self._arriving, ignore_errors=True)
        make_private_directory(self._arriving)
        for lock in filter(Path.is_file, self._locks.iterdir()):  # of an older version, for the runs of everybody
            lock.unlink()

    def files(self) -> list[WheelFile]:
        """Return all wheels, by name and content."""
        placed = [path for path in self.root.iterdir() if path.is_file() and is_file_name(path.name)]
        uploaded = [path for path in self._uploaded.glob("*/*") if is_file_name(path.name)]
        own = [WheelFile(name=path.name, sha256=self._digest(path)) for path in placed]
        return own + [WheelFile(name=path.name, sha256=path.parent.name) for path in uploaded]

    def path(self, sha256: str, name: str) -> Path:
        """Return a wheel's file, which counts as used then. Raises Rejection where there is none."""
        if _SHA256.fullmatch(sha256) and is_file_name(name):
            uploaded, placed = self._uploaded / sha256 / name, self.root / name
            if uploaded.is_file():
                with suppress(OSError):
                    uploaded.parent.touch()
                return uploaded
            if placed.is_file() and self._digest(placed) == sha256:
                return placed
        raise Rejection(404, f"There is no wheel {name[:100]!r} with that SHA-256.")

    @contextmanager
    def arriving(self) -> Iterator[Path]:
        """Yield the path of a file to write, which is deleted unless it was kept."""
        path = self._arriving / secrets.token_hex(8)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def keep(self, arrived: Path, wheel: WheelFile) -> None:
        """Keep a file that a node brought; its content has been checked."""
        self._drop_old()
        folder = self._uploaded / wheel.sha256
        make_private_directory(folder)
        arrived.replace(folder / wheel.name)

    def lock(self, run_id: str, key: str) -> str | None:
        """Return a lock that a node of the run resolved."""
        with suppress(OSError):
            return (self._locks / run_id / key).read_text() if _KEY.fullmatch(key) else None
        return None

    def named(self, run_id: str, wheels: Iterable[WheelFile]) -> set[WheelFile]:
        """Return those of the wheels that a lock of the run names."""
        texts = [path.read_text() for path in (self._locks / run_id).glob("*")]
        return {wheel for wheel in wheels if any(is_named(wheel, text) for text in texts)}

    def keep_lock(self, run_id: str, key: str, text: str) -> str:
        """Keep a resolved lock unless another node was sooner; returns the one that counts. Raises Rejection."""
        if not _KEY.fullmatch(key):
            raise Rejection(422, "A lock is named by 16 hexadecimal digits.")
        folder = self._locks / run_id
        make_private_directory(folder)
        if len(text) + sum(_BLOCK_BYTES + path.stat().st_size for path in folder.iterdir()) > MOST_LOCK_BYTES:
            raise Rejection(413, f"The locks of a run have at most {MOST_LOCK_BYTES} bytes together.")
        with self.arriving() as path:
            path.write_text(text)
            with suppress(FileExistsError):
                (folder / key).hardlink_to(path)
        return (folder / key).read_text()

    def forget_locks(self, run_id: str) -> None:
        """Delete the locks of a run that is erased."""
        shutil.rmtree(self._locks / run_id, ignore_errors=True)

    def _digest(self, path: Path) -> str:
        status = path.stat()
        key = (path.name, status.st_size, status.st_mtime)
        if key not in self._digests:
            with path.open("rb") as file:
                self._digests[key] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._digests[key]

    def _drop_old(self) -> None:
        for folder in self._uploaded.iterdir():
            if self._clock.wall() - folder.stat().st_mtime > KEPT_S:
                shutil.rmtree(folder, ignore_errors=True)

"""The server's snapshots: store their files, hold those about to be launched, delete unused ones."""

from __future__ import annotations

import logging
import math
import re
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dashboard.clock import AnchoredTime
from dashboard.private_files import make_private_directory
from dashboard.snapshots import uploads
from dashboard.snapshots.archive import Archive, Packed, pack
from dashboard.snapshots.code_packing import CodeRequest, PackedCode, pack_code
from dashboard.snapshots.git import GitLimits
from dashboard.snapshots.git_address import CodeRefused
from dashboard.snapshots.origin import Origin
from db.engine import Store
from db.runs import snapshots as snapshot_records
from db.runs.snapshots import SnapshotView
from domain.choices import RECIPES
from domain.spec import RunSpec

log = logging.getLogger("rankzero")
HELD_S = 3600.0
"""Seconds that a snapshot is kept before a run uses it."""
SHA256 = re.compile(r"[0-9a-f]{64}")


class Snapshots:
    """The stored snapshots; thread-safe. Files are named by their SHA-256, never by user input."""

    def __init__(self, store: Store, root: Path, limit_bytes: int, clock: AnchoredTime, name: str = "") -> None:
        """Open the folder; `name` distinguishes dashboards that share it."""
        self.limit_bytes = limit_bytes
        self.git_limits = GitLimits()
        self._store, self._root, self._clock = store, root, clock
        self._arriving = root / f"arriving{name}"
        self._lock = threading.Lock()
        self._held: dict[str, float] = {}
        make_private_directory(root)
        shutil.rmtree(self._arriving, ignore_errors=True)  # incomplete files after a crash
        make_private_directory(self._arriving)
        self._held = {path.name: clock() for path in root.iterdir() if SHA256.fullmatch(path.name)}

    def path(self, sha256: str) -> Path:
        """Return the path of a snapshot's archive."""
        return self._root / sha256

    def archive(self, sha256: str) -> Archive:
        """Open a snapshot for reading."""
        return Archive(self.path(sha256))

    def path_to_read(self, sha256: str) -> Path | None:
        """Return the path of an archive that the actor may use; None where there is none for them."""
        return self.path(sha256) if self.find(sha256) else None

    def find(self, sha256: str) -> SnapshotView | None:
        """Return a snapshot whose file is stored here and that the actor may use; None for others."""
        is_here = SHA256.fullmatch(sha256) and self.path(sha256).exists()
        return snapshot_records.find(self._store, sha256) if is_here else None

    def hold(self, sha256: str) -> SnapshotView | None:
        """Return a snapshot and keep it for a while although no run uses it yet."""
        with self._lock:
            snapshot = self.find(sha256)
            if snapshot is not None:
                self._held[sha256] = self._clock()
            return snapshot

    @contextmanager
    def for_launch(self, spec: RunSpec) -> Iterator[PackedCode | None]:
        """Store a spec's code, held until the run is in the store; None where its target is not stored, or already is.

        A snapshot that the spec names has been found and held for the actor by then. After a failed launch code
        stays held for `HELD_S`: an upload can be launched again. Raises CodeRefused."""
        code = self._bring(spec)
        yield code
        with self._lock:
            self._held.pop(code.packed.sha256 if code else spec.snapshot or "", None)

    @contextmanager
    def arriving(self) -> Iterator[Path]:
        """Make a temporary folder for an upload, deleted at the end."""
        folder = self._arriving / secrets.token_hex(8)
        make_private_directory(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def accept(self, archive: Path, sha256: str) -> SnapshotView:
        """Store an uploaded archive whose hash was verified. Raises CodeRefused.

        The answer has neither an origin nor an earlier time: that it is here already may be hidden from the sender."""
        self.forget_unused()
        files = Archive(archive).check_members(self.limit_bytes)
        packed = Packed(archive, sha256, archive.stat().st_size, files)
        return replace(self._keep(packed, None, is_upload=True), origin={}, created_at=self._clock())

    def set_origin(self, sha256: str, origin: Origin) -> SnapshotView | None:
        """Record a snapshot's origin, unless a run of somebody else relies on an earlier one; None: no such snapshot.

        The answer has the origin that was sent and the present time: that it was here may be hidden from the sender."""
        snapshot = self.hold(sha256)
        if snapshot is None:
            return None
        sent = origin.model_dump()
        snapshot_records.keep(self._store, sha256, snapshot.size_bytes, snapshot.files, sent, self._clock())
        return replace(snapshot, origin=sent, created_at=self._clock())

    def take_upload(self, file: Path, name: str, folder: Path) -> tuple[SnapshotView, list[str]]:
        """Store a script or archive from the browser; also return its Python files. Raises CodeRefused."""
        self.forget_unused()
        top, selection = uploads.unpack(file, name, folder / "code", self.limit_bytes)
        packed = pack(selection, folder / "archive", self.limit_bytes)
        snapshot = self._keep(packed, Origin(kind="upload", path=name), is_upload=True)
        return snapshot, uploads.scripts(selection, top)

    def forget_unused(self) -> None:
        """Delete snapshots that no run uses and that are not held for a launch."""
        with self._lock:
            now = self._clock()
            self._held = {sha256: at for sha256, at in self._held.items() if now - at < HELD_S}
            # Other dashboards on this store hold snapshots that are unknown here.
            made_before = math.inf if self._store.is_sqlite else now - HELD_S
            for sha256 in snapshot_records.forget_unused(self._store, self._held, made_before):
                self.path(sha256).unlink(missing_ok=True)
                log.info("snapshot %s deleted: no run uses it", sha256[:12])

    def _bring(self, spec: RunSpec) -> PackedCode | None:
        if spec.snapshot:
            self._check_named(spec)
        if spec.snapshot or spec.workdir or spec.target in RECIPES:
            return None
        with self.arriving() as folder:
            code = pack_code(CodeRequest.of(spec), folder / "archive", self.limit_bytes, self.git_limits)
            self._keep(code.packed, code.origin)
        return code

    def _check_named(self, spec: RunSpec) -> None:
        assert spec.snapshot is not None
        if spec.workdir:
            raise CodeRefused("workdir", "a run in place takes no snapshot; remove one of the two.")
        if not (spec.entry or spec.module):
            raise CodeRefused("entry", "name the file or module to start in the snapshot.")
        files = self.archive(spec.snapshot).files()
        if spec.entry and spec.entry not in files:
            raise CodeRefused("entry", f"there is no file {spec.entry!r} in the snapshot.")

    def _keep(self, packed: Packed, origin: Origin | None, *, is_upload: bool = False) -> SnapshotView:
        """Store the file before its row, so that every listed snapshot exists."""
        with self._lock:
            self._held[packed.sha256] = self._clock()
            packed.path.replace(self.path(packed.sha256))
            origin_values = None if origin is None else origin.model_dump()
            snapshot_records.keep(
                self._store,
                packed.sha256,
                packed.size_bytes,
                packed.files,
                origin_values,
                self._clock(),
                is_upload=is_upload,
            )
            snapshot = snapshot_records.find(self._store, packed.sha256)
            assert snapshot is not None
            return snapshot

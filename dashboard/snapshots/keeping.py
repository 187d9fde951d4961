"""The server's snapshots: their files, who is about to use them, and when they go."""

from __future__ import annotations

import logging
import math
import re
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dashboard.clock import Clock
from dashboard.security.token_files import make_private_directory
from dashboard.snapshots import uploads
from dashboard.snapshots.archive import Archive
from dashboard.snapshots.bringing import CodeRequest, PackedCode, pack_code
from dashboard.snapshots.git_source import GitLimits
from dashboard.snapshots.origin import Origin
from dashboard.snapshots.packing import Packed, pack
from dashboard.snapshots.refusal import CodeRefused
from db.engine import Store
from db.reports import snapshots as snapshot_records
from db.reports.snapshots import SnapshotView
from domain.errors import InvalidRequest
from domain.launch.plan import recipe_names
from domain.spec import RunSpec

log = logging.getLogger("rankzero")
HELD_S = 3600.0
"""What was brought waits so long for the run that will name it."""
SHA256 = re.compile(r"[0-9a-f]{64}")


class Snapshots:
    """Safe to use from any thread. Files are named by their SHA-256, never by what somebody wrote."""

    def __init__(self, store: Store, root: Path, limit_bytes: int, clock: Clock, name: str = "") -> None:
        """`name` tells the dashboards apart that share the folder."""
        self.limit_bytes = limit_bytes
        self.git_limits = GitLimits()
        self._store, self._root, self._clock = store, root, clock
        self._arriving = root / f"arriving{name}"
        self._lock = threading.Lock()
        self._held: dict[str, float] = {}
        make_private_directory(root)
        shutil.rmtree(self._arriving, ignore_errors=True)  # what a crash left half done
        make_private_directory(self._arriving)
        self._held = {path.name: clock() for path in root.iterdir() if SHA256.fullmatch(path.name)}

    def path(self, sha256: str) -> Path:
        """Where a snapshot's archive is."""
        return self._root / sha256

    def archive(self, sha256: str) -> Archive:
        """A snapshot to read in."""
        return Archive(self.path(sha256))

    def find(self, sha256: str) -> SnapshotView | None:
        """A snapshot that is whole here."""
        is_here = SHA256.fullmatch(sha256) and self.path(sha256).exists()
        return snapshot_records.find(self._store, sha256) if is_here else None

    def hold(self, sha256: str) -> SnapshotView | None:
        """The same for somebody who is about to launch it: it stays for a while, though no run names it."""
        with self._lock:
            self._held[sha256] = self._clock()
            snapshot = self.find(sha256)
            if snapshot is None:
                del self._held[sha256]
            return snapshot

    @contextmanager
    def for_launch(self, spec: RunSpec) -> Iterator[RunSpec]:
        """The specification with its code kept, until the run that names it is in the store. Raises InvalidRequest."""
        try:
            spec = self._with_code(spec)
        except CodeRefused as error:
            raise InvalidRequest(error.field, str(error)) from error
        yield spec
        with self._lock:
            self._held.pop(spec.snapshot or "", None)

    @contextmanager
    def arriving(self) -> Iterator[Path]:
        """A folder of one's own for what arrives; gone at the end."""
        folder = self._arriving / secrets.token_hex(8)
        make_private_directory(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def accept(self, archive: Path, sha256: str) -> SnapshotView:
        """Take in an archive that was sent and whose hash was found right. Raises CodeRefused."""
        self.forget_unused()
        files = Archive(archive).check(self.limit_bytes)
        return self._keep(Packed(archive, sha256, archive.stat().st_size, files), None)

    def set_origin(self, sha256: str, origin: Origin) -> SnapshotView | None:
        """Where a snapshot came from this time; None when there is none."""
        snapshot = self.hold(sha256)
        if snapshot is None:
            return None
        snapshot_records.keep(
            self._store, sha256, snapshot.size_bytes, snapshot.files, origin.model_dump(), self._clock()
        )
        return self.find(sha256)

    def take_upload(self, file: Path, name: str, folder: Path) -> tuple[SnapshotView, list[str]]:
        """A script or an archive from the browser; also the Python files to choose from. Raises CodeRefused."""
        self.forget_unused()
        top, selection = uploads.unpack(file, name, folder / "code", self.limit_bytes)
        packed = pack(selection, folder / "archive", self.limit_bytes)
        return self._keep(packed, Origin(kind="upload", path=name)), uploads.scripts(selection, top)

    def forget_unused(self) -> None:
        """Delete what no run names any more and nobody is about to launch."""
        with self._lock:
            now = self._clock()
            self._held = {sha256: at for sha256, at in self._held.items() if now - at < HELD_S}
            # What other dashboards on this store are about to launch is known to them alone.
            made_before = math.inf if self._store.is_sqlite else now - HELD_S
            for sha256 in snapshot_records.forget_unused(self._store, self._held, made_before):
                self.path(sha256).unlink(missing_ok=True)
                log.info("snapshot %s deleted: no run uses it", sha256[:12])

    def _with_code(self, spec: RunSpec) -> RunSpec:
        if spec.target in recipe_names() or (spec.workdir and not spec.snapshot):
            return spec
        if spec.snapshot:
            self._check_kept(spec)
            return spec
        with self.arriving() as folder:
            request = CodeRequest(spec.target, spec.entry, spec.module, spec.ref, frozenset(spec.links))
            packed_code = pack_code(request, folder / "archive", self.limit_bytes, self.git_limits)
            self._keep(packed_code.packed, packed_code.origin)
        return spec_with_code(spec, packed_code)

    def _check_kept(self, spec: RunSpec) -> None:
        assert spec.snapshot is not None
        if self.hold(spec.snapshot) is None:
            raise CodeRefused("snapshot", f"there is no snapshot {spec.snapshot[:12]}… here; send it first.")
        if spec.workdir:
            raise CodeRefused("workdir", "a run in place takes no snapshot; leave out one of the two.")
        if not (spec.entry or spec.module):
            raise CodeRefused("entry", "name the file or module to start in the snapshot.")
        files = self.archive(spec.snapshot).files()
        if spec.entry and spec.entry not in files:
            raise CodeRefused("entry", f"there is no file {spec.entry!r} in the snapshot.")

    def _keep(self, packed: Packed, origin: Origin | None) -> SnapshotView:
        """The file first, then its row: what the store lists is there."""
        with self._lock:
            self._held[packed.sha256] = self._clock()
            packed.path.replace(self.path(packed.sha256))
            origin_values = None if origin is None else origin.model_dump()
            snapshot_records.keep(
                self._store, packed.sha256, packed.size_bytes, packed.files, origin_values, self._clock()
            )
            snapshot = snapshot_records.find(self._store, packed.sha256)
            assert snapshot is not None
            return snapshot


def spec_with_code(spec: RunSpec, packed_code: PackedCode) -> RunSpec:
    """The specification of exactly this code."""
    return spec.model_copy(update={"snapshot": packed_code.packed.sha256, "entry": packed_code.entry})

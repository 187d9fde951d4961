"""The storage of each checkpoint, and the deletion of what was discarded: checkpoints, points of killed imports."""

from __future__ import annotations

import importlib.util
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from dashboard.clock import AnchoredTime
from dashboard.errors import Rejection
from dashboard.object_name import ObjectName
from dashboard.storage.bucket import Bucket
from dashboard.storage.checkpoint_storage import CheckpointStorage, Via
from dashboard.storage.disk import Disk
from dashboard.storage.files import Files
from dashboard.storage.s3 import S3, BucketTrouble, Gone
from db.archives.restore import delete_abandoned
from db.checkpoints import checkpoint_reports
from db.engine import Store
from db.models import Checkpoint


class CheckpointStorages:
    """The disk and the buckets for checkpoints of one dashboard; safe to use from any thread."""

    def __init__(self, store: Store, files: Files, url: str | None, clock: AnchoredTime) -> None:
        """`url`: s3://BUCKET/PREFIX for new checkpoints; None for the directory of files. Raises StorageUnusable."""
        if url and importlib.util.find_spec("botocore") is None:
            raise StorageUnusable(f"Checkpoints in {url} need the package botocore: pip install 'rankzero[s3]'.")
        self._store, self._url, self._clock = store, url, clock
        self.s3 = S3(clock.time)
        self.disk, self.bucket = Disk(files), Bucket(store, files, self.s3, clock)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="discarded")
        self._sweeping: Future[None] | None = None
        self._sweep_from = float("-inf")

    def locate(self, run_id: str) -> str | None:
        """The address of a new checkpoint of this run, never used before; None on the disk."""
        return f"{self._url}/{run_id}/{secrets.token_hex(8)}" if self._url else None

    @property
    def takes_adopted(self) -> bool:
        """Whether new checkpoints are stored on this machine's disk, so that a worker here need not send them."""
        return self._url is None

    def of(self, checkpoint: Checkpoint) -> CheckpointStorage:
        """The checkpoint's storage; older checkpoints stay where they are when the settings change."""
        return self.disk if checkpoint.location is None else self.bucket

    def response(
        self, request: Request, checkpoint: Checkpoint, via: Via, more: Mapping[str, str] | None = None
    ) -> Response:
        """The response to GET or HEAD of a checkpoint, from its storage. Raises Rejection."""
        require_present(checkpoint)
        if not checkpoint.complete:
            raise Rejection(409, f"Checkpoint {checkpoint.id} is not complete yet.")
        try:
            return self.of(checkpoint).response(request, checkpoint, via, more)
        except Gone as gone:
            raise Rejection(410, str(gone)) from gone
        except BucketTrouble as trouble:
            raise Rejection(503, str(trouble)) from trouble

    @contextmanager
    def as_file(self, checkpoint: Checkpoint, folder: Path) -> Iterator[Path]:
        """A file with a checkpoint's bytes while it is needed, also of one in the bin. Raises Rejection."""
        if not checkpoint.complete:
            require_present(checkpoint)
        try:
            with self.of(checkpoint).as_file(checkpoint, folder) as path:
                yield path
        except BucketTrouble as trouble:
            raise Rejection(410 if isinstance(trouble, Gone) else 503, str(trouble)) from trouble

    def sweep(self) -> None:
        """Delete discarded objects from buckets, in a thread of its own; called once a second."""
        if self._clock.time.now() >= self._sweep_from and (self._sweeping is None or self._sweeping.done()):
            self._sweep_from = self._clock.time.now() + SWEEP_EVERY_S
            self._sweeping = self._threads.submit(self._delete_discarded)

    def close(self) -> None:
        """Start no further deletions."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _delete_discarded(self) -> None:
        try:
            now = self._clock()
            checkpoint_reports.give_up_uploads(self._store, now - ABANDONED_AFTER_S, now)
            for location in checkpoint_reports.discarded(self._store, AT_ONCE):
                self.s3.delete(ObjectName.parse(location))
                checkpoint_reports.deleted(self._store, location)
                log.info("%s deleted", location)
        except BucketTrouble as trouble:
            log.warning("discarded checkpoints are still in their bucket: %s", trouble)
            self._sweep_from = self._clock.time.now() + AFTER_TROUBLE_S
        except Exception:  # the store may be unavailable for a moment; the next sweep tries again
            log.exception("discarded checkpoints could not be deleted")


def require_present(checkpoint: Checkpoint) -> None:
    """Raise Rejection for a checkpoint that was deleted, which says whether it can be restored."""
    if checkpoint.deleted_at is not None:
        by = f"by the rule {checkpoint.deleted_why!r}" if checkpoint.deleted_why else f"by {checkpoint.deleted_by}"
        back = "`rankzero checkpoint restore RUN NAME` brings it back" if checkpoint.complete else "its bytes are gone"
        raise Rejection(410, f"Checkpoint {checkpoint.path} was deleted {by}: {back}.")


log = logging.getLogger("rankzero")
SWEEP_EVERY_S = 2.0
AFTER_TROUBLE_S = 60.0
AT_ONCE = 100
ABANDONED_AFTER_S = 24 * 3600.0
"""Age of an ended attempt whose unfinished uploads are given up; a node that returns later restarts them."""


class StorageUnusable(Exception):
    """Checkpoints cannot be stored as the settings say; the message says why."""


# Deletes the points that killed imports of archives left in the store.

IMPORTS_EVERY_S = 60.0


class AbandonedImports:
    """One series at a time, so that nobody waits long for the store."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock, self._sweep_from = store, clock, 0.0

    def sweep(self) -> None:
        """Delete the next abandoned series; called once a second."""
        if (now := self._clock()) < self._sweep_from:
            return
        if delete_abandoned(self._store, now):
            log.info("points of an import that was interrupted deleted")
        else:
            self._sweep_from = now + IMPORTS_EVERY_S

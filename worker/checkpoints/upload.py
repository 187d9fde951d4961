"""Hands finished checkpoints over: by a link where both see one disk, else by resumable upload, or to a bucket."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from domain.messages import CheckpointOffer
from worker.checkpoints.findings import Unfinished
from worker.checkpoints.multipart import BucketWay, part_sums, through_server
from worker.checkpoints.watching import CheckpointCopy, CheckpointWatch
from worker.session.answers import Adoption
from worker.session.client import CheckpointPlace, Client, TaskRef
from worker.session.failures import ChecksumMismatch, RequestRefused

log = logging.getLogger(__name__)
FULL_DISK_PATIENCE_S = 60.0
"""After the last process ended, room on the node is waited for no longer: the file itself stays there."""


class Handover:
    """The checkpoints of one attempt: `take` and `send` may run in different threads."""

    def __init__(self, watch: CheckpointWatch, client: Client, part: TaskRef, label: str) -> None:
        self._watch, self._client, self._part, self._label = watch, client, part, label
        self._bucket_way = BucketWay(client, label)
        self._sums: tuple[Path, int, list[str]] | None = None
        """Of the snapshot that is on its way: its path, the size of its parts, and their SHA-256."""
        self._final_since: float | None = None
        self._all_taken = False
        self.refusals: list[str] = []
        """In words, the checkpoints that the server takes not at all."""

    def take(self, now: float, *, final: bool) -> None:
        """Copy what is complete; `final`: no process of the attempt exists any more."""
        if self._all_taken:
            return
        self._watch.step(now, final=final)
        if self._watch.notice:
            log.warning("attempt %s: %s", self._label, self._watch.notice)
        if final:
            self._final_since = now if self._final_since is None else self._final_since
            late = now - self._final_since >= FULL_DISK_PATIENCE_S
            self._all_taken = self._watch.notice is None or late

    def send(self, adoption: Adoption | None, may_go_on: Callable[[], bool]) -> None:
        """Hand over everything taken, the oldest first. What the server raises goes through."""
        for snapshot in self._watch.pending():
            if not may_go_on():
                return
            try:
                self._hand_over(snapshot, adoption, may_go_on)
            except (ChecksumMismatch, FileNotFoundError):
                log.warning("attempt %s: %s did not arrive as it was; again", self._label, snapshot.name)
                self._watch.forget(snapshot)
            except RequestRefused as refusal:
                log.error("attempt %s: checkpoint %s was refused: %s", self._label, snapshot.name, refusal)
                self.refusals.append(f"checkpoint {snapshot.name} was refused: {refusal}")
                self._watch.done(snapshot)

    @property
    def all_taken(self) -> bool:
        """After the end: nothing more will be copied."""
        return self._all_taken

    def unfinished(self) -> list[Unfinished]:
        """What was never whole; to be asked when all else was taken."""
        return self._watch.incomplete()

    @property
    def is_done(self) -> bool:
        """Everything complete was taken after the end, and the server has it."""
        return self._all_taken and not self._watch.pending()

    def _hand_over(
        self, snapshot: CheckpointCopy, adoption: Adoption | None, may_go_on: Callable[[], bool]
    ) -> None:
        snapshot.path.stat()  # a newer one may have taken its place: then it is not even offered
        offer = CheckpointOffer(
            path=snapshot.name,
            step=snapshot.step,
            size_bytes=snapshot.size_bytes,
            sha256=snapshot.sha256,
            written_at=snapshot.written_at,
            prefix=snapshot.prefix,
        )
        place = self._client.offer_checkpoint(self._part, offer)
        if not place.complete and not self._bring(snapshot, place, adoption, may_go_on):
            return
        self._watch.done(snapshot)
        log.info("attempt %s: checkpoint %s is on the server", self._label, snapshot.name)

    def _bring(
        self,
        snapshot: CheckpointCopy,
        place: CheckpointPlace,
        adoption: Adoption | None,
        may_go_on: Callable[[], bool],
    ) -> bool:
        if place.part_bytes is not None:
            return self._bring_in_parts(snapshot, place, place.part_bytes, may_go_on)
        name = _link_into(adoption, snapshot.path, place) if adoption else None
        if name is None and not through_server(self._client, snapshot, place, may_go_on):
            return False
        self._client.complete_checkpoint(place.checkpoint_id, name)
        return True

    def _bring_in_parts(
        self, snapshot: CheckpointCopy, place: CheckpointPlace, part_bytes: int, may_go_on: Callable[[], bool]
    ) -> bool:
        sums = self._sums_of(snapshot, part_bytes, may_go_on)
        if sums is None or not self._bucket_way.bring(snapshot, place, part_bytes, sums, may_go_on):
            return False
        self._client.complete_checkpoint(place.checkpoint_id, parts=sums)
        return True

    def _sums_of(
        self, snapshot: CheckpointCopy, part_bytes: int, may_go_on: Callable[[], bool]
    ) -> list[str] | None:
        if self._sums is None or self._sums[:2] != (snapshot.path, part_bytes):
            sums = part_sums(snapshot.path, part_bytes, snapshot.sha256, may_go_on)
            self._sums = (snapshot.path, part_bytes, sums) if sums is not None else None
        return self._sums[2] if self._sums else None


def sees_server_disk(adoption: Adoption | None) -> bool:
    """Whether the proof can be read here, so that snapshots need not travel."""
    if adoption is None:
        return False
    with suppress(OSError):
        return Path(adoption.proof_file).read_text().strip() == adoption.proof
    return False


def _link_into(adoption: Adoption, snapshot: Path, place: CheckpointPlace) -> str | None:
    """A second name in the server's directory: our own stays until the server has taken it, whatever dies."""
    name = f"adopted-{place.checkpoint_id}"
    target = Path(adoption.directory) / name
    try:
        target.unlink(missing_ok=True)
        target.hardlink_to(snapshot)
    except OSError:  # another file system, or one without links
        return None
    return name

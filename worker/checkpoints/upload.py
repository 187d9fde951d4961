"""Uploads finished checkpoints: by a hard link on the server's own disk, else in pieces to the server or a bucket."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx2

from domain.assignments import Assignment, Resend
from domain.checkpoints.contents import CheckpointContents
from domain.clock import SYSTEM_CLOCK, Clock
from domain.messages import CheckpointOffer
from domain.text.formats import duration_words
from worker.checkpoints.watching import CheckpointCopy, CheckpointWatch, Unfinished
from worker.node.attempt_files import EXISTING_FILE
from worker.node.regular_files import open_regular
from worker.node.run_files import existing_files
from worker.session import bodies
from worker.session.answers import Adoption, CheckpointUpload, PresignedPart
from worker.session.bodies import LEAST_BYTES, FilePart, MayContinue, UploadInterrupted
from worker.session.client import Client, TaskRef
from worker.session.failures import (
    AttemptSuperseded,
    ChecksumMismatch,
    OffsetMismatch,
    RequestFailed,
    RequestRefused,
    ServerAway,
    TooLarge,
)

log = logging.getLogger(__name__)


class CheckpointUploader:
    """Copies and uploads one attempt's checkpoints; `take` and `send` may run in different threads."""

    def __init__(
        self, watch: CheckpointWatch, client: Client, task: TaskRef, label: str, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._watch, self._label = watch, label
        self._transfer = CheckpointTransfer(client, task, label, clock)
        self.bucket = self._transfer.bucket
        self._final_since: float | None = None
        self.all_taken = False
        """Whether the attempt has ended and nothing more will be copied."""
        self._logged_notice: str | None = None
        self._offers_again = False
        """Whether those that were sent are to be offered again."""
        self._lacking = set[str]()
        """Names of those that the server turned out to lack, to be copied again."""
        self._sent_since_end = 0
        self._sent_of: dict[Path, int] = {}
        """Copy -> bytes of it that the server has."""

    def take(self, now: float, *, final: bool) -> None:
        """Copy complete checkpoints before they change; `final`: no process of the attempt exists any more."""
        if self._lacking:
            self._take_lacking()
        if self.all_taken:
            return
        self._watch.step(now, final=final)
        if self._watch.notice and self._watch.notice != self._logged_notice:
            log.warning("attempt %s: %s", self._label, self._watch.notice)
        self._logged_notice = self._watch.notice
        if final:
            self._final_since = now if self._final_since is None else self._final_since
            is_late = now - self._final_since >= FULL_DISK_PATIENCE_S
            self.all_taken = self._watch.notice is None or is_late

    def offer_again(self) -> None:
        """Offer anew what was sent, at the next `send`: a store that was restored may lack it. From any thread."""
        self._offers_again = True

    def _offer_sent(self) -> None:
        """Ask which of the checkpoints that are still here the server lacks; only those are copied again."""
        for copy in self._watch.sent():
            with suppress(RequestRefused):
                if not self._transfer.is_there(copy):
                    log.info("attempt %s: the server lacks %s, which is sent again", self._label, copy.name)
                    self._lacking.add(copy.name)
        self._offers_again = False

    def _take_lacking(self) -> None:
        self.all_taken, self._final_since = False, None
        while self._lacking:
            self._watch.take_again(self._lacking.pop())

    def send(self, adoption: Adoption | None, may_continue: MayContinue) -> None:
        """Upload all copies, the oldest first. Raises ServerAway, RequestFailed."""
        with suppress(AttemptSuperseded, UploadInterrupted):  # the main loop handles a superseded attempt
            if self._offers_again:
                self._offer_sent()
            for copy in self._watch.pending():
                if not may_continue():
                    return
                self._send(copy, adoption, may_continue)

    def end(self) -> None:
        """Copy nothing more; may be called from another thread."""
        self._watch.end()

    def pending(self) -> list[CheckpointCopy]:
        """Copies that are not on the server yet, the oldest first."""
        return self._watch.pending()

    def sent_and_total(self) -> tuple[int, int]:
        """Bytes that are on the server of the copies that were to be sent since the end, and of all of them."""
        sent_bytes, total_bytes = self._sent_since_end, self._sent_since_end
        for copy in self._watch.pending():
            sent_bytes += self._sent_of.get(copy.path, 0)
            total_bytes += copy.size_bytes
        return sent_bytes, total_bytes

    def unfinished(self) -> list[Unfinished]:
        """Checkpoints that could not be copied; valid once all others were."""
        return self._watch.incomplete()

    @property
    def refusals(self) -> list[str]:
        """A sentence for each checkpoint that the server refused, also before a restart of the worker."""
        return [*self._watch.refused.values()]

    @property
    def has_copies(self) -> bool:
        """Whether copies wait to be sent."""
        return bool(self._watch.pending())

    @property
    def is_done(self) -> bool:
        """Whether the server has every complete checkpoint of the ended attempt."""
        is_asking = self._offers_again or self._lacking
        return self.all_taken and not (is_asking or self._watch.pending())

    def _send(self, copy: CheckpointCopy, adoption: Adoption | None, may_continue: MayContinue) -> None:
        try:
            self._upload(copy, adoption, may_continue)
            log.info("attempt %s: checkpoint %s is on the server", self._label, copy.name)
        except ChecksumMismatch:
            log.warning("attempt %s: %s arrived damaged and is sent again", self._label, copy.name)
            self._watch.forget(copy)
        except FileNotFoundError:
            log.info("attempt %s: the copy of %s is gone; the checkpoint is copied again", self._label, copy.name)
            self._watch.forget(copy)
        except RequestRefused as refusal:
            log.error("attempt %s: checkpoint %s was refused: %s", self._label, copy.name, refusal)
            self._watch.refused[copy.name] = f"checkpoint {copy.name} was refused: {refusal}"
            self._watch.done(copy)

    def _upload(self, copy: CheckpointCopy, adoption: Adoption | None, may_continue: MayContinue) -> None:
        self._transfer.send(copy, adoption, may_continue, partial(self._note_sent, copy))
        self._sent_of.pop(copy.path, None)
        if self._final_since is not None:
            self._sent_since_end += copy.size_bytes
        self._watch.stored(copy)

    def _note_sent(self, copy: CheckpointCopy, offset: int) -> None:
        self._sent_of[copy.path] = offset


OnSent = Callable[[int], object]
"""Called with each offset of a copy that the server has."""


class CheckpointTransfer:
    """Sends copies of one task's checkpoints to the server or its bucket; used by one thread at a time."""

    def __init__(self, client: Client, task: TaskRef, label: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client, self._task, self._label, self._clock = client, task, label, clock
        self.bucket = BucketUpload(client)
        self._direct_from = float("-inf")
        self._digests: tuple[Path, int, list[str]] | None = None
        """The copy being uploaded, the size of its parts in bytes, and their SHA-256."""

    def is_there(self, copy: CheckpointCopy) -> bool:
        """Whether the server has all of a copy, which is offered for that. Raises the client's exceptions."""
        return self._client.offer_checkpoint(self._task, _offer(copy, None)).complete

    def send(
        self,
        copy: CheckpointCopy,
        adoption: Adoption | None,
        may_continue: MayContinue,
        on_sent: OnSent = lambda _: None,
        task_id: int | None = None,
    ) -> int:
        """Offer a copy, send what the server lacks of it, and have it listed; return its id on the server.

        `task_id`: the merge that made it. Raises FileNotFoundError, UploadInterrupted and the client's exceptions."""
        if not copy.path.is_file():  # replaced by a newer copy, or by something else: it is not even offered
            raise FileNotFoundError(copy.path)
        upload = self._client.offer_checkpoint(self._task, _offer(copy, task_id))
        if not upload.complete:
            link_name, digests = None, None
            if upload.part_bytes is not None:
                digests = self._send_parts(copy, upload, upload.part_bytes, may_continue, on_sent)
            elif (link_name := _link_into(adoption, copy.path, upload)) is None:
                send_through_server(self._client, copy, upload, may_continue, on_sent, self._clock)
            self._client.complete_checkpoint(upload.checkpoint_id, copy.sha256, link_name, digests)
        return upload.checkpoint_id

    def _send_parts(
        self,
        copy: CheckpointCopy,
        upload: CheckpointUpload,
        part_bytes: int,
        may_continue: MayContinue,
        on_sent: OnSent,
    ) -> list[str]:
        """Upload to the bucket, or through the server if it cannot be reached; returns the parts' SHA-256."""
        if self._digests is None or self._digests[:2] != (copy.path, part_bytes):
            digests = part_digests(copy.path, part_bytes, copy.sha256, may_continue)
            self._digests = copy.path, part_bytes, digests
        digests = self._digests[2]
        if self._clock.now() >= self._direct_from:
            try:
                self.bucket.send(copy, upload, part_bytes, digests, may_continue)
                return digests
            except BucketUnreachable as error:
                log.warning("attempt %s: checkpoints go through the server for now: %s", self._label, error)
                self._direct_from = self._clock.now() + INDIRECT_FOR_S
        try:
            send_through_server(self._client, copy, upload, may_continue, on_sent, self._clock)
        except ServerAway:
            self._direct_from = float("-inf")  # the network is down altogether, not only to the bucket
            raise
        return digests


FULL_DISK_PATIENCE_S = 60.0
"""Longest wait for free disk space after the attempt's end; the checkpoint itself stays where it is."""
INDIRECT_FOR_S = 600.0
"""Seconds for which parts pass through the server after the bucket could not be reached from this node."""
FIRST_BYTES = 4 * 1024 * 1024
QUICK_S = 1.0
"""Requests start at FIRST_BYTES and double while one takes less than this, so that little is lost on a slow or broken
connection."""


def send_through_server(
    client: Client,
    copy: CheckpointCopy,
    upload: CheckpointUpload,
    may_continue: MayContinue,
    reached: OnSent = lambda _: None,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Send the bytes that the server lacks. Raises UploadInterrupted and the client's exceptions.

    `reached` is called with each offset that the server has."""
    offset, batch_bytes = upload.offset, upload.batch_bytes
    most = batch_bytes if upload.part_bytes is not None else min(FIRST_BYTES, batch_bytes)
    with open_regular(copy.path) as file:
        while offset < copy.size_bytes:
            began = clock.now()
            piece = FilePart(file.fileno(), offset, min(most, copy.size_bytes - offset), may_continue)
            offset = _send_piece(client, upload, piece)
            reached(offset)
            if offset > copy.size_bytes:
                raise RequestFailed(f"the answer claims byte {offset} of {copy.name}, which has {copy.size_bytes}")
            if clock.now() - began < QUICK_S:
                most = min(2 * most, batch_bytes)


def _send_piece(client: Client, upload: CheckpointUpload, piece: FilePart) -> int:
    """Send as much as passes at once; returns the durable offset. Raises TooLarge if not even a little passes."""
    piece = replace(piece, size_bytes=client.body_limit.most(len(piece)))
    while True:
        try:
            end = client.send_checkpoint(upload.checkpoint_id, piece.offset, piece)
        except OffsetMismatch as mismatch:
            return mismatch.have
        except TooLarge:
            piece = replace(piece, size_bytes=len(piece) // 2)
            if len(piece) < LEAST_BYTES:
                raise
            continue
        if end == piece.offset and len(piece) < upload.batch_bytes and upload.part_bytes is not None:
            raise RequestFailed(
                f"the bucket takes parts of {upload.batch_bytes:,} bytes, and {len(piece):,} pass to the server at once"
            )
        return end


def sees_server_disk(adoption: Adoption | None) -> bool:
    """Whether this node can read the server's proof file, so that copies need not be sent."""
    if adoption is None:
        return False
    with suppress(OSError):
        return Path(adoption.proof_file).read_text().strip() == adoption.proof
    return False


def _offer(copy: CheckpointCopy, task_id: int | None) -> CheckpointOffer:
    return CheckpointOffer(
        path=copy.name,
        step=copy.step,
        size_bytes=copy.size_bytes,
        sha256=copy.sha256,
        written_at=copy.written_at,
        prefix=copy.prefix,
        task_id=task_id,
        holds=CheckpointContents.model_validate(copy.holds) if copy.holds else None,
    )


def _link_into(adoption: Adoption | None, copy: Path, upload: CheckpointUpload) -> str | None:
    """Link the copy into the server's directory, so that it survives whichever side is killed; returns the link's name.

    None without `adoption`, and on file systems without links."""
    if adoption is None:
        return None
    name = f"adopted-{upload.checkpoint_id}"
    target = Path(adoption.directory) / name
    try:
        target.unlink(missing_ok=True)
        target.hardlink_to(copy)
    except OSError:
        return None
    return name


# Uploads checkpoints in parts from this node to a bucket, by addresses that the server signs.

READ_BYTES = 1024 * 1024
AT_ONCE = 4
"""Parallel uploads: one connection to a distant bucket uses a fraction of the bandwidth."""
WRONG_DIGEST = ("BadDigest", "InvalidDigest", "ChecksumMismatch")


class BucketUnreachable(Exception):
    """The bucket did not accept a part from this node."""


def part_digests(path: Path, part_bytes: int, sha256: str, may_continue: MayContinue) -> list[str]:
    """The SHA-256 of each part, computed together with that of the whole file.

    Raises ChecksumMismatch if the file's is not `sha256`, UploadInterrupted."""
    whole, digests = hashlib.sha256(), []
    with open_regular(path) as file:
        while True:
            part, size_bytes = hashlib.sha256(), 0
            while size_bytes < part_bytes and (piece := file.read(min(READ_BYTES, part_bytes - size_bytes))):
                whole.update(piece)
                part.update(piece)
                size_bytes += len(piece)
            if not size_bytes:
                break
            digests.append(part.hexdigest())
            if not may_continue():
                raise UploadInterrupted
    if whole.hexdigest() != sha256:
        raise ChecksumMismatch(f"{path.name} changed after it was copied")
    return digests


class BucketUpload:
    """Uploads to a bucket; used by one thread at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.http = httpx2.Client(timeout=bodies.BUCKET_TIMEOUT, headers={"User-Agent": "rankzero-worker"})

    def send(
        self,
        copy: CheckpointCopy,
        upload: CheckpointUpload,
        part_bytes: int,
        digests: Sequence[str],
        may_continue: MayContinue,
    ) -> None:
        """Upload the missing parts. Raises BucketUnreachable, UploadInterrupted and the client's exceptions."""
        missing = range(-(-upload.offset // part_bytes), len(digests))
        with ThreadPoolExecutor(AT_ONCE) as threads:
            for first in missing[::AT_ONCE]:
                links = self._client.part_links(upload.checkpoint_id, first + 1, digests[first : first + AT_ONCE])
                offsets = range(first * part_bytes, copy.size_bytes, part_bytes)
                puts = [
                    threads.submit(self._put, link, copy, offset, part_bytes, may_continue)
                    for link, offset in zip(links, offsets, strict=False)
                ]
                for put in puts:
                    put.result()

    def _put(
        self,
        link: PresignedPart,
        copy: CheckpointCopy,
        offset: int,
        part_bytes: int,
        may_continue: MayContinue,
    ) -> None:
        size_bytes = min(part_bytes, copy.size_bytes - offset)
        headers = link.headers | {"Content-Length": str(size_bytes)}
        try:
            with open_regular(copy.path) as file:
                part = FilePart(file.fileno(), offset, size_bytes, may_continue)
                answer = self.http.put(link.url, content=part, headers=headers)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise BucketUnreachable(f"the bucket cannot be reached from this node ({type(error).__name__})") from error
        if answer.is_success:
            return
        if any(code in answer.text for code in WRONG_DIGEST):
            raise ChecksumMismatch(f"the bucket refused a part of {copy.name}: its SHA-256 is different")
        if answer.status_code == 404:
            raise RequestFailed("the bucket no longer has the upload; it is started again")
        raise BucketUnreachable(f"the bucket answered {answer.status_code} to this node")


# Send a checkpoint of an ended attempt again, from its file on this node, because it never arrived complete.

GONE = "It is no longer on its node, or incomplete there."
REMOVED = "Its node keeps the folders of ended attempts for {} only, and has it no longer."
"""With how long that is, where the option --keep-attempts is set."""
CHANGED = "Its file was overwritten since; the newer version was sent instead."


def send_again(
    resend: Resend, assignment: Assignment | None, folder: Path, client: Client, adoption: Adoption | None,
    may_continue: MayContinue, clock: Clock = SYSTEM_CLOCK, keep_s: float | None = None,
) -> None:  # fmt: skip
    """Send it, and answer the request. Raises what the client raises: it is tried again.

    `folder` is the attempt's directory and `assignment` what it was made for; None where the node has it no more.
    `keep_s`: how long the node keeps such folders; None: for ever."""
    problem: str | None = GONE if keep_s is None or folder.exists() else REMOVED.format(duration_words(keep_s))
    if assignment is not None:
        problem = _send_from_file(resend, assignment, folder, client, adoption, may_continue, clock)
    if not may_continue():
        return
    log.info("checkpoint %s of run %s: %s", resend.path, resend.run_id, problem or "sent again")
    try:
        client.resent(resend.checkpoint_id, problem)
    except RequestRefused as refusal:  # the run was deleted meanwhile
        log.info("checkpoint %d: %s", resend.checkpoint_id, refusal)


def _send_from_file(
    resend: Resend, assignment: Assignment, folder: Path, client: Client, adoption: Adoption | None,
    may_continue: MayContinue, clock: Clock,
) -> str | None:  # fmt: skip
    """Return why it could not be sent; None once the server has it whole."""
    workdir = assignment.spec.workdir
    roots = [folder / "work"] + ([Path(workdir)] if workdir else [])
    watch = CheckpointWatch(
        roots, folder / "outbox", ignore=existing_files(folder / EXISTING_FILE),
        world_size=assignment.spec.world_size, clock=clock,
    )  # fmt: skip
    watch.take_again(resend.path)
    watch.step(clock.now(), final=True)
    copy = next((copy for copy in watch.pending() if copy.name == resend.path), None)
    if copy is None:
        return watch.notice or GONE
    task = TaskRef(resend.fence, resend.node_rank, resend.label)
    uploader = CheckpointUploader(watch, client, task, f"{resend.run_id}/{resend.attempt}", clock)
    uploader.send(adoption, may_continue)
    if refusal := watch.refused.get(resend.path):
        return refusal
    return None if copy.sha256 == resend.sha256 else CHANGED

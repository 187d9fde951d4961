"""The server as a worker sees it: one typed method per endpoint, and few kinds of failure."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import httpx
from pydantic import BaseModel, Field, ValidationError

from domain.messages import (
    CheckAnswer,
    CheckpointOffer,
    Findings,
    JobReport,
    NodeFacts,
    NodeLoad,
    PointBatch,
    Stacks,
    TaskReport,
)
from domain.spec import ResumeFrom
from worker.session import other_servers
from worker.session.answers import Registration, Wishes, read_wishes
from worker.session.body_limit import BodyLimit
from worker.session.failures import (
    AttemptSuperseded,
    ChecksumMismatch,
    RequestFailed,
    RequestRefused,
    TooLarge,
    broken_off,
    json_of,
    offset_in,
    raise_for,
    raise_unless_ours,
)

log = logging.getLogger(__name__)
CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 15.0
COMPLETION_TIMEOUT_S = 600.0
"""The server may have to read a large checkpoint to its end before it answers."""

Reached = Callable[[int], None]
"""Hears how many bytes of a file are here."""
Answer = TypeVar("Answer", bound=BaseModel)


class FileOffsets(BaseModel):
    """What the server has of one generation of a file: bytes, and bytes whose points are stored."""

    offset: Annotated[int, Field(ge=0, strict=True)]
    points_offset: Annotated[int, Field(ge=0, strict=True)] = 0


class CheckpointPlace(BaseModel):
    """Where a checkpoint's transfer stands."""

    checkpoint_id: int
    offset: Annotated[int, Field(ge=0, strict=True)]
    complete: bool
    batch_bytes: Annotated[int, Field(gt=0)] = 4 * 1024 * 1024
    """The server makes it durable in stretches of this size."""
    part_bytes: int | None = None
    """Set where it goes to a bucket, in parts of this size, and nodes may bring them there."""


class _Heard(BaseModel):
    """A report was taken; the attempt is in this state now."""

    state: str


class _Time(BaseModel):
    """The server's clock."""

    now: float


class PresignedPart(BaseModel):
    """Where one part may be PUT, and the headers that belong to it."""

    url: str
    headers: dict[str, str]


class PartLinks(BaseModel):
    """For as many parts as were asked for."""

    links: list[PresignedPart]


@dataclass(frozen=True)
class TaskRef:
    """One node's part of one attempt, as the server addresses it."""

    fence: int
    node_rank: int
    label: str = field(default="", compare=False)
    """RUN/ATTEMPT/UID, by which a store that was restored tells it from another attempt of its own."""

    @property
    def path(self) -> str:
        """Below the server's address."""
        return f"/api/worker/attempts/{self.fence}/parts/{self.node_rank}"


class Client:
    """A connection to the server; safe to use from several threads."""

    def __init__(self, url: str, token: str = "", transport: httpx.BaseTransport | None = None) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self._http = httpx.Client(
            base_url=self.url,
            trust_env=False,
            transport=transport,
            timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_connections=16, max_keepalive_connections=16, keepalive_expiry=60),
            headers={"User-Agent": "rankzero-worker"},
            event_hooks={"response": [self._note_address]},
        )
        self.store = ""
        """The identity of the store that this node registered with."""
        self.own_address: str | None = None
        """This node's, in the last conversation with the server."""
        self.body_limit = BodyLimit()

    def close(self) -> None:
        """Drop all connections."""
        self._http.close()

    def register(
        self, facts: NodeFacts, node_id: str | None, bearer: str, again: bool = False
    ) -> Registration:
        """Join with a join token, or come back as `node_id`, best with that node's own; keeps the token it is given.

        `again`: this very process was that node before."""
        body = facts.model_dump(mode="json") | {"node_id": node_id, "again": again}
        # 409 is another worker under this name here, not an attempt that was superseded.
        answer = self._json(
            "POST", "/api/worker/register", content=json.dumps(body), bearer=bearer, gone=RequestRefused
        )
        registration = _read(Registration, answer)
        self.token, self.store = registration.token, registration.store
        self.remember(0, "")
        return registration

    def remember(self, fence: int, label: str) -> None:
        """Say with every request which store this node works for, and the newest attempt it had from that."""
        self._http.headers["Rankzero-Store"] = f"{self.store or '-'} {fence or '-'} {label}".strip()

    def wishes(self, version: str | None, wait_s: float) -> Wishes:
        """What this node should run; answered at once when it differs from `version`, else after a while."""
        params: dict[str, str | float] = {"wait": wait_s} | ({} if version is None else {"version": version})
        timeout = httpx.Timeout(ANSWER_TIMEOUT_S + wait_s, connect=CONNECT_TIMEOUT_S)
        return _checked(read_wishes, self._json("GET", "/api/worker/wishes", params=params, timeout=timeout))

    def load(self, sample: NodeLoad) -> None:
        """A sample of the node's load; also says that the node is alive, and what limits its requests."""
        if notices := [notice for notice in (sample.notice, self.body_limit.notice) if notice]:
            sample = sample.model_copy(update={"notice": " ".join(notices)})
        self._request("POST", "/api/worker/load", content=sample.model_dump_json())

    def time(self) -> float:
        """The server's clock, in seconds since the epoch."""
        return _read(_Time, self._json("GET", "/api/worker/time")).now

    def answer_check(self, check_id: int, said: CheckAnswer) -> None:
        """What the node found out for one stage of a preflight."""
        path = f"/api/worker/checks/{check_id}"
        self._request("POST", path, content=said.model_dump_json(), gone=RequestRefused)

    def report(self, part: TaskRef, report: TaskReport) -> str:
        """What became of this node's part; returns the attempt's state on the server."""
        content = report.model_dump_json(exclude_none=True)
        return _read(_Heard, self._json("POST", f"{part.path}/report", part=part, content=content)).state

    def report_job(self, fence: int, report: JobReport) -> None:
        """What Slurm says of an attempt's job."""
        self._request("POST", f"/api/worker/jobs/{fence}", content=report.model_dump_json())

    def file_offsets(self, part: TaskRef, path: str, generation: int) -> FileOffsets:
        """How much of a file the server has."""
        params = {"path": path, "generation": generation}
        return _read(FileOffsets, self._json("GET", f"{part.path}/files", part=part, params=params))

    def append(self, part: TaskRef, path: str, generation: int, offset: int, data: bytes) -> int:
        """Append to a mirrored file; returns the offset behind the data."""
        params = {"path": path, "generation": generation, "offset": offset}
        answer = self._json("PUT", f"{part.path}/files", part=part, params=params, content=data, is_bulk=True)
        return offset_in(answer, offset + len(data), offset + len(data))

    def points(self, part: TaskRef, batch: PointBatch) -> int:
        """Points of one byte range of an event file; returns the offset up to which they are stored."""
        content = batch.model_dump_json()
        answer = self._json("POST", f"{part.path}/points", part=part, content=content, is_bulk=True)
        return offset_in(answer, batch.end, batch.end)

    def findings(self, part: TaskRef, findings: Findings) -> None:
        """All that is wrong with the part now."""
        self._request("POST", f"{part.path}/findings", part=part, content=findings.model_dump_json())

    def stacks(self, part: TaskRef, stacks: Stacks) -> None:
        """Where the part's ranks stand, for somebody who asked."""
        self._request("POST", f"{part.path}/stacks", part=part, content=stacks.model_dump_json())

    def offer_checkpoint(self, part: TaskRef, offer: CheckpointOffer) -> CheckpointPlace:
        """Announce a snapshot; the same one again gets the same answer."""
        answer = self._json("POST", f"{part.path}/checkpoints", part=part, content=offer.model_dump_json())
        return _read(CheckpointPlace, answer)

    def send_checkpoint(self, checkpoint_id: int, offset: int, data: bytes) -> int:
        """The next bytes of a snapshot; returns the offset up to which they are durable."""
        path = f"/api/worker/checkpoints/{checkpoint_id}/data"
        params = {"offset": offset}
        # 409 is a second request for the same bytes, not an attempt that was superseded.
        answer = self._json("PUT", path, params=params, content=data, gone=RequestFailed, is_bulk=True)
        return offset_in(answer, 0, offset + len(data))

    def part_links(self, checkpoint_id: int, first: int, sha256s: Sequence[str]) -> list[PresignedPart]:
        """Addresses in the bucket for parts from number `first` on, each for the bytes with that SHA-256."""
        content = json.dumps({"first": first, "sha256": list(sha256s)})
        path = f"/api/worker/checkpoints/{checkpoint_id}/parts"
        return _read(PartLinks, self._json("POST", path, content=content, gone=RequestFailed)).links

    def complete_checkpoint(
        self, checkpoint_id: int, adopted: str | None = None, parts: Sequence[str] | None = None
    ) -> None:
        """All bytes are there (or renamed into the adopt directory): the server checks the SHA-256.

        `parts`: the SHA-256 of each part, where they went to a bucket."""
        path = f"/api/worker/checkpoints/{checkpoint_id}/complete"
        content = json.dumps({"adopted": adopted} | ({"parts": list(parts)} if parts is not None else {}))
        timeout = httpx.Timeout(COMPLETION_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        self._request(
            "POST", path, content=content, gone=RequestFailed, wrong=ChecksumMismatch, timeout=timeout
        )

    def download(self, source: ResumeFrom, target: Path, reached: Reached = lambda _: None) -> None:
        """Fetch a checkpoint into `target`, going on where an earlier try ended; verified, or RequestRefused.

        `reached` hears again and again how many bytes there are; what it raises ends the try."""
        partial = target.with_name(f"{target.name}.part")
        have = partial.stat().st_size if partial.exists() else 0
        if have > source.size_bytes:
            partial.unlink()
            have = 0
        if have < source.size_bytes or have == 0:
            self._fetch(partial, source.download_path, have, reached)
        with partial.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != source.sha256:
            partial.unlink()
            raise ChecksumMismatch(f"the checkpoint {source.name} arrived with another SHA-256 than listed")
        partial.replace(target)

    def _fetch(self, partial: Path, path: str, have: int, reached: Reached) -> None:
        """From its bucket where it is in one; through the server when that cannot be reached from here."""
        try:
            self._stream_into(partial, path, have, reached, via="bucket")
        except other_servers.ElsewhereAway as error:
            log.info("a checkpoint comes through the server: %s", error)
            have = partial.stat().st_size if partial.exists() else 0
            self._stream_into(partial, path, have, reached, via="server")

    def download_snapshot(self, sha256: str, target: Path) -> None:
        """Fetch the code of a run into `target`; verified, or RequestRefused. It is small: a broken try begins anew."""
        target.unlink(missing_ok=True)
        self._stream_into(target, f"/api/worker/snapshots/{sha256}", 0)
        with target.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                raise ChecksumMismatch("it arrived with another SHA-256 than the run names")

    def _stream_into(
        self, partial: Path, path: str, have: int, reached: Reached = lambda _: None, **params: str
    ) -> None:
        headers = {"Authorization": f"Bearer {self.token}"} | ({"Range": f"bytes={have}-"} if have else {})
        try:
            with self._http.stream("GET", path, headers=headers, params=params) as response:
                if response.status_code != 307:
                    if not response.is_success:
                        response.read()
                        raise_for(response, gone=RequestRefused, wrong=RequestRefused)
                    if response.headers.get("content-type", "").startswith("text/html"):
                        raise RequestFailed(f"{path}: the answer is a page, so it is not the server's")
                    other_servers.write_down(response, partial, reached)
                    return
        except httpx.TransportError as error:
            raise broken_off(error) from error
        other_servers.fetch(response.headers.get("location", ""), partial, have, reached)

    def _json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer = json_of(self._request(method, path, **options))
        if not isinstance(answer, dict):
            raise RequestFailed(f"{path}: the answer is empty, so it is not the server's")
        return answer

    def _note_address(self, response: httpx.Response) -> None:
        stream = response.extensions.get("network_stream")
        with suppress(OSError):
            if stream is not None and (address := stream.get_extra_info("client_addr")):
                self.own_address = str(address[0])

    def _request(
        self,
        method: str,
        path: str,
        *,
        bearer: str | None = None,
        part: TaskRef | None = None,
        gone: type[Exception] = AttemptSuperseded,
        wrong: type[Exception] = RequestRefused,
        is_bulk: bool = False,
        **options: Any,
    ) -> httpx.Response:
        """An answer of the server's. `is_bulk`: data that can be sent in smaller pieces when this is too large."""
        headers = {"Authorization": f"Bearer {self.token if bearer is None else bearer}"}
        if part is not None and part.label:
            headers["Rankzero-Attempt"] = part.label
        content = options.pop("content", None)
        if content is not None:
            kind = "application/octet-stream" if isinstance(content, bytes) else "application/json"
            headers["Content-Type"] = kind
            content = content if isinstance(content, bytes) else content.encode()
        if is_bulk and len(content) > self.body_limit.most(len(content)):
            raise TooLarge(f"a body of {len(content):,} bytes will not pass: {self.body_limit.notice}")
        try:
            response = self._http.request(method, path, headers=headers, content=content, **options)
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise broken_off(error) from error
        try:
            if not response.is_success:
                raise_for(response, gone, wrong)
            raise_unless_ours(response)
        except TooLarge:
            if is_bulk:
                self.body_limit.refused(len(content))
            raise
        if is_bulk:
            self.body_limit.passed()
        return response


def _read(kind: type[Answer], answer: dict[str, Any]) -> Answer:
    return _checked(partial(kind.model_validate, extra="ignore"), answer)


def _checked(read: Callable[[dict[str, Any]], Answer], answer: dict[str, Any]) -> Answer:
    try:
        return read(answer)
    except ValidationError as error:
        raise RequestFailed(f"the answer cannot be read: {error}") from error

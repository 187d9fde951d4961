"""The worker's HTTP client of the server: one typed method per endpoint."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, TypeAdapter, ValidationError

from domain.assignments import Assignment, ResumeFrom
from domain.checkpoint_use.tasks import CheckpointTaskReport, DesiredCheckpointTask, PushDetails
from domain.collectives import CollectivesAnswer, CollectivesVerdict, NodeCollectives
from domain.environments.wheels import WantedWheels, WheelAnswer, WheelFile
from domain.health.testing import TestAnswer
from domain.masking.log_lines import hidden
from domain.masking.values import ValueMask
from domain.messages import (
    Bundle,
    CheckAnswer,
    CheckpointOffer,
    Findings,
    JobReport,
    NodeFacts,
    NodeLoad,
    PieceAnswer,
    PieceAnswers,
    PieceHead,
    Stacks,
    TaskReport,
)
from domain.network.trust import tls_context
from domain.profiles.records import RankProfile
from domain.watching.messages import WatchAnswer, WatchRequest
from worker.session import bodies
from worker.session.answers import (
    CheckpointUpload,
    DesiredState,
    FileOffsets,
    PartLinks,
    PresignedPart,
    Registration,
    read_desired_state,
)
from worker.session.bodies import BodyLimit, FilePart
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
    require,
)

log = logging.getLogger(__name__)


class Client:
    """A connection to the server; thread-safe. Raises CannotTrust."""

    def __init__(self, url: str, token: str = "", transport: httpx2.BaseTransport | None = None) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self._http = httpx2.Client(
            base_url=self.url,
            trust_env=False,
            verify=tls_context(self.url, httpx2.create_ssl_context),
            transport=transport,
            timeout=httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx2.Limits(max_connections=16, max_keepalive_connections=16, keepalive_expiry=60),
            headers={"User-Agent": "rankzero-worker"},
            event_hooks={"response": [self._note_address]},
        )
        self.store = ""
        """The identity of the store that this node registered with."""
        self.node_id = ""
        """Known once this client has registered."""
        self.own_address: str | None = None
        """This node's address in the last connection to the server."""
        self.body_limit = BodyLimit()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def register(self, facts: NodeFacts, node_id: str | None, bearer: str, again: bool = False) -> Registration:
        """Join with a join token, or return as `node_id` with that node's own token; stores the token of the answer.

        `again`: this same process was registered as that node before."""
        body = facts.model_dump(mode="json") | {"node_id": node_id, "again": again}
        # Here 409 means that another worker has this name, not that an attempt was superseded.
        answer = self._json(
            "POST",
            "/api/worker/register",
            content=json.dumps(body),
            bearer=bearer,
            conflict_error=RequestRefused,
        )
        registration = _read(Registration, answer)
        self.token, self.store = registration.token, registration.store
        self.node_id = registration.node_id
        self.remember(0, "")
        return registration

    def watch(self, request: WatchRequest) -> WatchAnswer:
        """Ask for the place of a watched command in a run, as the person whose token this client has."""
        answer = self._json("POST", "/api/watch", content=request.model_dump_json(), conflict_error=RequestRefused)
        return _read(WatchAnswer, answer)

    def remember(self, fence: int, label: str) -> None:
        """Name with every request the store this node works for and the newest attempt received from it."""
        self._http.headers["Rankzero-Store"] = f"{self.store or '-'} {fence or '-'} {label}".strip()

    def desired_state(self, version: str | None, wait_s: float) -> DesiredState:
        """Poll this node's desired state: answers at once if it differs from `version`, else after `wait_s` seconds."""
        params: dict[str, str | float] = {"wait": wait_s} | ({} if version is None else {"version": version})
        timeout = httpx2.Timeout(ANSWER_TIMEOUT_S + wait_s, connect=CONNECT_TIMEOUT_S)
        answer = self._json("GET", "/api/worker/desired", params=params, timeout=timeout)
        return _checked(read_desired_state, answer)

    def load(self, sample: NodeLoad) -> list[WheelFile]:
        """Send a sample of the node's load, which is also its heartbeat, with the notice of the request limit.

        Returns the wheels that this node is asked to fetch for others."""
        if notices := [notice for notice in (sample.notice, self.body_limit.notice) if notice]:
            sample = sample.model_copy(update={"notice": " ".join(notices)})
        answer = self._json("POST", "/api/worker/load", content=_masked_json(sample, hidden))
        require({"node_id": self.node_id} if self.node_id else {}, answer, "/api/worker/load")
        return _read(_LoadAnswer, answer).wheels

    def time(self) -> float:
        """The server's clock, in seconds since the epoch."""
        return _read(_ServerTime, self._json("GET", "/api/worker/time")).now

    def answer_check(self, check_id: int, answer: CheckAnswer) -> None:
        """Send the node's results for one stage of a preflight check."""
        path = f"/api/worker/checks/{check_id}"
        self._store(path, {"check_id": check_id}, answer, conflict_error=RequestRefused)

    def answer_test(self, test_id: int, answer: TestAnswer) -> None:
        """Send the results of a test of this node's devices."""
        path = f"/api/worker/tests/{test_id}"
        self._store(path, {"test_id": test_id}, answer, conflict_error=RequestRefused)

    def report(self, task: TaskRef, report: TaskReport) -> str:
        """Report the task's state; returns the attempt's state on the server."""
        content, path = task.masked(report, exclude_none=True), f"{task.path}/report"
        answer = self._json("POST", path, task=task, content=content)
        require(task.identity, answer, path)
        return _read(_ReportAnswer, answer).state

    def report_job(self, fence: int, report: JobReport) -> None:
        """Report the state of an attempt's Slurm job."""
        self._store(f"/api/worker/jobs/{fence}", {"fence": fence}, report)

    def file_offsets(self, task: TaskRef, path: str, generation: int) -> FileOffsets:
        """How far the server has this file."""
        params = {"path": task.mask.text(path), "generation": generation}
        return _read(FileOffsets, self._json("GET", f"{task.path}/files", task=task, params=params))

    def bundle(self, heads: Sequence[PieceHead], contents: Sequence[bytes]) -> list[PieceAnswer]:
        """Send pieces of streams in one request (domain/messages.py); returns the answer to each.

        Raises RequestFailed if there are more or fewer answers than pieces."""
        answer = self._json(
            "POST",
            "/api/worker/pieces",
            content=Bundle.body(heads, contents),
            conflict_error=RequestRefused,
            bulk_bytes=sum(map(len, contents)),
        )
        answers = _read(PieceAnswers, answer).answers
        if len(answers) != len(heads):
            raise RequestFailed(f"{len(answers)} answers to {len(heads)} pieces")
        return answers

    def findings(self, task: TaskRef, findings: Findings) -> None:
        """Replace the task's current findings."""
        self._store(f"{task.path}/findings", task.identity, findings, task=task)

    def stacks(self, task: TaskRef, stacks: Stacks) -> None:
        """Send the stack traces of the task's ranks, which a person requested."""
        self._store(f"{task.path}/stacks", task.identity, stacks, task=task)

    def collectives(self, task: TaskRef, collectives: NodeCollectives) -> CollectivesVerdict | None:
        """Send the latest collectives of the task's ranks; returns where the ranks of all nodes disagree."""
        content = task.masked(collectives)
        answer = self._json("POST", f"{task.path}/collectives", task=task, content=content)
        return _read(CollectivesAnswer, answer).verdict

    def profile(self, task: TaskRef, outcome: RankProfile) -> None:
        """Send the outcome of a requested profile in one rank."""
        self._store(f"{task.path}/profiles", task.identity, outcome, task=task)

    def offer_checkpoint(self, task: TaskRef, offer: CheckpointOffer) -> CheckpointUpload:
        """Announce a checkpoint's snapshot; may be repeated."""
        answer = self._json("POST", f"{task.path}/checkpoints", task=task, content=task.masked(offer))
        return _read(CheckpointUpload, answer)

    def send_checkpoint(self, checkpoint_id: int, offset: int, data: bytes | FilePart) -> int:
        """Send the next bytes of a snapshot; returns the offset up to which they are durable."""
        path = f"/api/worker/checkpoints/{checkpoint_id}/data"
        params = {"offset": offset}
        # Here 409 means a second request for the same bytes, not that an attempt was superseded.
        answer = self._json(
            "PUT", path, params=params, content=data, conflict_error=RequestFailed, bulk_bytes=len(data)
        )
        return offset_in(answer, 0, offset + len(data))

    def part_links(self, checkpoint_id: int, first: int, sha256s: Sequence[str]) -> list[PresignedPart]:
        """Presigned URLs for the parts from number `first` on, each valid for the bytes with that SHA-256."""
        content = json.dumps({"first": first, "sha256": list(sha256s)})
        path = f"/api/worker/checkpoints/{checkpoint_id}/parts"
        return _read(PartLinks, self._json("POST", path, content=content, conflict_error=RequestFailed)).links

    def complete_checkpoint(
        self, checkpoint_id: int, sha256: str, adopted: str | None = None, parts: Sequence[str] | None = None
    ) -> None:
        """Report that all bytes arrived (or were renamed into the adopt directory); the server verifies the SHA-256.

        Returns only once the server has confirmed this very checkpoint as complete. `parts`: the SHA-256 of each part
        that was uploaded to a bucket."""
        path = f"/api/worker/checkpoints/{checkpoint_id}/complete"
        content = json.dumps({"adopted": adopted} | ({"parts": list(parts)} if parts is not None else {}))
        timeout = httpx2.Timeout(COMPLETION_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        answer = self._json(
            "POST",
            path,
            content=content,
            conflict_error=RequestFailed,
            invalid_error=ChecksumMismatch,
            timeout=timeout,
        )
        require({"checkpoint_id": checkpoint_id, "sha256": sha256, "complete": True}, answer, path)

    def resent(self, checkpoint_id: int, problem: str | None) -> None:
        """Answer the request to send a checkpoint again; `problem` is why it cannot be sent."""
        path = f"/api/worker/checkpoints/{checkpoint_id}/resent"
        answer = self._json("POST", path, content=json.dumps({"problem": problem}), conflict_error=RequestRefused)
        require({"checkpoint_id": checkpoint_id}, answer, path)

    def report_checkpoint_task(self, task: DesiredCheckpointTask, report: CheckpointTaskReport) -> None:
        """Report how far this node's work on a checkpoint is, or how it ended."""
        path = f"/api/worker/attempts/{task.fence}/checkpoint-tasks/{task.task_id}"
        ref = TaskRef(task.fence, task.node_rank, task.label)
        self._store(path, {"task_id": task.task_id}, report, task=ref)

    def push_details(self, task: DesiredCheckpointTask) -> PushDetails:
        """Ask for the secrets and the model card of a push. Raises RequestRefused, ServerAway."""
        path = f"/api/worker/attempts/{task.fence}/checkpoint-tasks/{task.task_id}/push"
        return _read(PushDetails, self._json("GET", path, conflict_error=RequestRefused))

    def download(self, source: ResumeFrom, target: Path, on_progress: OnProgress = lambda _: None) -> None:
        """Download a checkpoint into `target`, resuming an earlier try. Raises ChecksumMismatch.

        `on_progress` is called with the bytes received so far; an exception it raises ends the download."""
        partial = target.with_name(f"{target.name}.part")
        offset_bytes = partial.stat().st_size if partial.exists() else 0
        if offset_bytes > source.size_bytes:
            partial.unlink()
            offset_bytes = 0
        if offset_bytes < source.size_bytes or offset_bytes == 0:
            self._fetch(partial, source.download_path, offset_bytes, on_progress)
        with partial.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != source.sha256:
            partial.unlink()
            raise ChecksumMismatch(f"the checkpoint {source.name} does not match its listed SHA-256")
        partial.replace(target)

    def _fetch(self, partial: Path, path: str, offset_bytes: int, on_progress: OnProgress) -> None:
        """Download from the checkpoint's bucket, or through the server if the bucket cannot be reached."""
        try:
            self._stream_into(partial, path, offset_bytes, on_progress, via="bucket")
        except bodies.BucketUnavailable as error:
            log.info("a checkpoint comes through the server: %s", error)
            offset_bytes = partial.stat().st_size if partial.exists() else 0
            self._stream_into(partial, path, offset_bytes, on_progress, via="server")

    def download_snapshot(self, sha256: str, target: Path) -> None:
        """Download a code snapshot into `target`, always from its start. Raises ChecksumMismatch."""
        target.unlink(missing_ok=True)
        self._stream_into(target, f"/api/worker/snapshots/{sha256}", 0)
        with target.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                raise ChecksumMismatch("its SHA-256 does not match the run's")

    def want_wheels(self, task: TaskRef, wheels: Sequence[WheelFile]) -> WheelAnswer:
        """Ask for wheels that this node cannot fetch itself; repeated while it waits for them."""
        content = WantedWheels(wheels=list(wheels)).model_dump_json()
        return _read(WheelAnswer, self._of_task("POST", task, "wheels/wanted", content))

    def wheel_failed(self, wheel: WheelFile) -> None:
        """Say that this node cannot fetch a wheel for another."""
        self._json("POST", f"/api/worker/wheels/{wheel.sha256}/failed", content="{}")

    def download_wheel(self, task: TaskRef, wheel: WheelFile, target: Path) -> None:
        """Download a wheel from the server. Raises ChecksumMismatch."""
        partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
        try:
            self._stream_into(partial, f"{task.path}/wheels/{wheel.sha256}/{quote(wheel.name)}", 0)
            with partial.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != wheel.sha256:
                    raise ChecksumMismatch(f"the wheel {wheel.name} does not match its SHA-256")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def send_wheel(self, wheel: WheelFile, path: Path) -> None:
        """Send a wheel that another node waits for. Raises ServerAway, RequestRefused."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Length": str(path.stat().st_size)}
        timeout = httpx2.Timeout(COMPLETION_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        try:
            with path.open("rb") as file:
                address = f"/api/worker/wheels/{wheel.sha256}/{quote(wheel.name)}"
                pieces = iter(lambda: file.read(PIECE_BYTES), b"")
                response = self._http.put(address, content=pieces, headers=headers, timeout=timeout)
        except httpx2.TransportError as error:
            raise broken_off(error, self.url) from error
        if not response.is_success:
            raise_for(response, conflict_error=RequestRefused, invalid_error=ChecksumMismatch)

    def lock(self, task: TaskRef, key: str) -> str | None:
        """The packages of a lock as the first node of the run resolved them; None where none has."""
        return _read(_LockAnswer, self._of_task("GET", task, f"locks/{key}")).text

    def keep_lock(self, task: TaskRef, key: str, text: str) -> str:
        """Hand on the packages of a lock; returns those that count, of the run's node that was first."""
        return _read(_LockAnswer, self._of_task("PUT", task, f"locks/{key}", text.encode())).text or text

    def _of_task(self, method: str, task: TaskRef, place: str, content: str | bytes | None = None) -> dict[str, Any]:
        """Ask for what a task that has not ended may read or write. Raises RequestRefused for another, ServerAway."""
        path = f"{task.path}/{place}"
        return self._json(method, path, content=content, task=task, conflict_error=RequestRefused)

    def _stream_into(
        self,
        partial: Path,
        path: str,
        offset_bytes: int,
        on_progress: OnProgress = lambda _: None,
        **params: str,
    ) -> None:
        headers = {"Authorization": f"Bearer {self.token}"} | (
            {"Range": f"bytes={offset_bytes}-"} if offset_bytes else {}
        )
        try:
            with self._http.stream("GET", path, headers=headers, params=params) as response:
                if response.status_code != 307:
                    if not response.is_success:
                        response.read()
                        raise_for(response, conflict_error=RequestRefused, invalid_error=RequestRefused)
                    if response.headers.get("content-type", "").startswith("text/html"):
                        raise RequestFailed(f"{path}: the answer is a web page and did not come from the server")
                    bodies.write_body(response, partial, on_progress)
                    return
        except httpx2.TransportError as error:
            raise broken_off(error, self.url) from error
        bodies.fetch_from_bucket(response.headers.get("location", ""), partial, offset_bytes, on_progress)

    def _store(self, path: str, identity: Mapping[str, object], message: BaseModel, **options: Any) -> None:
        """Post a message, to which the server answers with the identity of what it is about."""
        task = options.get("task")
        content = task.masked(message) if isinstance(task, TaskRef) else message.model_dump_json()
        answer = self._json("POST", path, content=content, **options)
        require(identity, answer, path)

    def _json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer = json_of(self._request(method, path, **options))
        if not isinstance(answer, dict):
            raise RequestFailed(f"{path}: the answer is empty and did not come from the server")
        return answer

    def _note_address(self, response: httpx2.Response) -> None:
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
        task: TaskRef | None = None,
        conflict_error: type[Exception] = AttemptSuperseded,
        invalid_error: type[Exception] = RequestRefused,
        bulk_bytes: int | None = None,
        **options: Any,
    ) -> httpx2.Response:
        """Send a request and check its answer. `bulk_bytes` of data can be sent in smaller pieces if they are too
        large."""
        headers = {"Authorization": f"Bearer {self.token if bearer is None else bearer}"}
        if task is not None and task.label:
            headers["Rankzero-Attempt"] = task.label
        content, of_content = _content(options.pop("content", None))
        headers |= of_content
        if bulk_bytes is not None and bulk_bytes > self.body_limit.most(bulk_bytes):
            raise TooLarge(f"a body of {bulk_bytes:,} bytes will not pass: {self.body_limit.notice}")
        try:
            response = self._http.request(method, path, headers=headers, content=content, **options)
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise broken_off(error, self.url) from error
        try:
            if not response.is_success:
                raise_for(response, conflict_error, invalid_error)
            raise_unless_ours(response)
        except TooLarge:
            if bulk_bytes is not None:
                self.body_limit.refused(bulk_bytes)
            raise
        if bulk_bytes is not None:
            self.body_limit.passed()
        return response


def _content(content: str | bytes | None) -> tuple[bytes | None, dict[str, str]]:
    """A body as it is sent, and the headers that describe it: text is JSON."""
    if content is None:
        return None, {}
    kind = "application/json" if isinstance(content, str) else "application/octet-stream"
    sent = content.encode() if isinstance(content, str) else content
    return sent, {"Content-Type": kind, "Content-Length": str(len(sent))}


CONNECT_TIMEOUT_S = 3.0
PIECE_BYTES = 1024 * 1024
ANSWER_TIMEOUT_S = 15.0
COMPLETION_TIMEOUT_S = 600.0
"""The server may have to read a large checkpoint to its end before it answers."""
OnProgress = Callable[[int], None]
"""Called with the number of bytes of a file received so far."""
Answer = TypeVar("Answer", bound=BaseModel)
_JSON = TypeAdapter[Any](Any)


class _ReportAnswer(BaseModel):
    """The answer to a report: the attempt's current state."""

    state: str


class _LockAnswer(BaseModel):
    """A lock that a node resolved."""

    text: str | None = None


class _LoadAnswer(BaseModel):
    """The answer to a heartbeat."""

    wheels: list[WheelFile] = []


class _ServerTime(BaseModel):
    """The server's clock."""

    now: float


@dataclass(frozen=True)
class TaskRef:
    """Identifies one node's task of an attempt to the server."""

    fence: int
    node_rank: int
    label: str = field(default="", compare=False)
    """RUN/ATTEMPT/UID, by which a restored store distinguishes the attempt from another with the same number."""
    mask: ValueMask = field(default_factory=ValueMask, compare=False)
    """Masks the attempt's secrets in all that is sent of the task."""

    @classmethod
    def of(cls, assignment: Assignment) -> TaskRef:
        """The task of an assignment, for what holds no text of its attempt."""
        return cls(assignment.fence, assignment.node_rank, assignment.label)

    def masked(self, message: BaseModel, **options: Any) -> str:
        """The message as JSON, its texts masked. Raises ValueError for text that is not valid Unicode."""
        return _masked_json(message, self.mask, **options)

    @property
    def identity(self) -> dict[str, object]:
        """The part of each answer that says which task it is about."""
        return {"fence": self.fence, "node_rank": self.node_rank}

    @property
    def path(self) -> str:
        """The URL path of the task."""
        return f"/api/worker/attempts/{self.fence}/tasks/{self.node_rank}"


def _masked_json(message: BaseModel, mask: ValueMask, **options: Any) -> str:
    if not mask:
        return message.model_dump_json(**options)
    return _JSON.dump_json(mask.document(message.model_dump(mode="json", **options))).decode()


def _read(kind: type[Answer], answer: dict[str, Any]) -> Answer:
    return _checked(partial(kind.model_validate, extra="ignore"), answer)


def _checked(read: Callable[[dict[str, Any]], Answer], answer: dict[str, Any]) -> Answer:
    try:
        return read(answer)
    except ValidationError as error:
        raise RequestFailed(f"the answer cannot be read: {error}") from error

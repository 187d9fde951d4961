"""The server's answers to a worker, parsed so that an older worker tolerates a newer server."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from domain.assignments import Assignment, DesiredCheck, DesiredJob, Resend
from domain.checkpoint_use.tasks import DesiredCheckpointTask
from domain.health.testing import DesiredTest
from domain.protocol import FIRST

Entry = TypeVar("Entry", Assignment, DesiredCheck, DesiredCheckpointTask, DesiredJob, DesiredTest, Resend)


class Adoption(BaseModel):
    """How a worker proves that it sees the server's disk, and where it may then place snapshots."""

    directory: str
    proof_file: str
    proof: str


class Registration(BaseModel):
    """The server's answer to a node that joins."""

    node_id: str
    token: str
    protocol: int = FIRST
    """The server's protocol version; servers of the first version do not send one."""
    store: str = ""
    """The identity of the server's store."""
    poll_wait_s: float = 20.0
    heartbeat_s: float = 5.0
    adopt: Adoption | None = None


class DesiredState(BaseModel):
    """The complete desired state of this node: attempts, preflight checks and jobs."""

    version: str
    watched: bool = False
    assignments: list[Assignment]
    checks: list[DesiredCheck] = []
    """The preflight checks this node takes part in."""
    tests: list[DesiredTest] = []
    """The tests of devices that this node is to do."""
    jobs: list[DesiredJob] = []
    """For a gateway: the jobs that it should submit or end."""
    leave: bool = False
    """For a node of a Slurm job: its attempt has ended."""
    store: str = ""
    """The identity of the server's store; if it differs from the registration's, the store was restored or replaced."""
    end_unknown: list[str] = []
    """Labels of attempts that the store does not know and a person asked to end."""
    resends: list[Resend] = []
    """Checkpoints of ended attempts that this node is asked to send again."""
    checkpoint_tasks: list[DesiredCheckpointTask] = []
    """The work on stored checkpoints that this node is to do."""
    unreadable: list[str] = []
    """A sentence for each entry that this worker cannot read; the other entries apply."""


class FileOffsets(BaseModel):
    """How far the server has one generation of a file: its bytes, and the bytes whose points are stored."""

    offset: Annotated[int, Field(ge=0, strict=True)]
    points_offset: Annotated[int, Field(ge=0, strict=True)] = 0


class CheckpointUpload(BaseModel):
    """The progress of a checkpoint's upload."""

    checkpoint_id: int
    offset: Annotated[int, Field(ge=0, strict=True)]
    complete: bool
    batch_bytes: Annotated[int, Field(gt=0)] = 4 * 1024 * 1024
    """The most bytes that the server wants in one request, at whose end they are durable."""
    part_bytes: int | None = None
    """The size of a part, if nodes upload the checkpoint to a bucket themselves."""


class PresignedPart(BaseModel):
    """The URL and headers with which one part is uploaded by PUT."""

    url: str
    headers: dict[str, str]


class PartLinks(BaseModel):
    """One presigned URL for each requested part."""

    links: list[PresignedPart]


def read_desired_state(answer: dict[str, Any]) -> DesiredState:
    """Parse the desired state, skipping unreadable entries. Raises ValidationError if the answer itself is invalid."""
    unreadable: list[str] = []
    lists = {
        "assignments": _readable(Assignment, answer.get("assignments"), "assignment", unreadable),
        "checks": _readable(DesiredCheck, answer.get("checks", []), "preflight", unreadable),
        "tests": _readable(DesiredTest, answer.get("tests", []), "test", unreadable),
        "jobs": _readable(DesiredJob, answer.get("jobs", []), "job", unreadable),
        "checkpoint_tasks": _readable(DesiredCheckpointTask, answer.get("checkpoint_tasks", []), "task", unreadable),
        "resends": _readable(Resend, answer.get("resends", []), "checkpoint", unreadable),
    }
    return DesiredState.model_validate(answer | lists | {"unreadable": unreadable}, extra="ignore")


def _readable(kind: type[Entry], entries: Any, noun: str, unreadable: list[str]) -> Any:
    if not isinstance(entries, list):
        return entries  # reported when the whole answer is validated
    readable = []
    for entry in entries:
        try:
            readable.append(kind.model_validate(entry, extra="ignore"))
        except ValidationError as error:
            unreadable.append(_sentence(noun, entry, error))
    return readable


def _sentence(noun: str, entry: Any, error: ValidationError) -> str:
    """A sentence such as: The worker cannot read the assignment of run 7f3kq0a1b2 (spec.strategy: …) and skips it."""
    first = error.errors()[0]
    run_id = entry.get("run_id") if isinstance(entry, dict) else None
    subject = f"the {noun} of run {run_id}" if run_id else f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
    field = ".".join(str(key) for key in first["loc"]) or "it"
    return (
        f"The worker cannot read {subject} ({field}: {first['msg']}) and skips it. Dashboard and worker may be "
        "of different versions: upgrade the older one."
    )

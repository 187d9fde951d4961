"""What the server answers to a worker, read so that a younger server's answers are not lost on an older worker."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from domain.protocol import FIRST
from domain.spec import Assignment, CheckWish, JobWish

One = TypeVar("One", Assignment, CheckWish, JobWish)


class Adoption(BaseModel):
    """How a worker proves that it sees the server's disk, and where it may leave snapshots then."""

    directory: str
    proof_file: str
    proof: str


class Registration(BaseModel):
    """What the server says to a node that joins."""

    node_id: str
    token: str
    protocol: int = FIRST
    """The version of the messages that the server speaks; servers of the first one name none."""
    store: str = ""
    """The identity of the server's store."""
    poll_wait_s: float = 20.0
    heartbeat_s: float = 5.0
    adopt: Adoption | None = None


class Wishes(BaseModel):
    """The complete list of what this node should be running, and is to find out."""

    version: str
    watched: bool = False
    assignments: list[Assignment]
    checks: list[CheckWish] = []
    """The preflights it takes part in."""
    jobs: list[JobWish] = []
    """Of a gateway: the jobs that it should have submitted, or should end."""
    leave: bool = False
    """Of a node of a Slurm job: its attempt has ended."""
    store: str = ""
    """The identity of the server's store; another one than at the registration: it was restored, or replaced."""
    end_unknown: list[str] = []
    """Labels of attempts that the store does not know and somebody wants ended."""
    unreadable: list[str] = []
    """A sentence for each entry that this worker cannot read; the others are taken as they are."""


def read_wishes(answer: dict[str, Any]) -> Wishes:
    """The list with what can be read of it. Raises ValidationError where it is no such list at all."""
    unreadable: list[str] = []
    lists = {
        "assignments": _readable(Assignment, answer.get("assignments"), "assignment", unreadable),
        "checks": _readable(CheckWish, answer.get("checks", []), "preflight", unreadable),
        "jobs": _readable(JobWish, answer.get("jobs", []), "job", unreadable),
    }
    return Wishes.model_validate(answer | lists | {"unreadable": unreadable}, extra="ignore")


def _readable(kind: type[One], entries: Any, what: str, unreadable: list[str]) -> Any:
    if not isinstance(entries, list):
        return entries  # said by whoever validates the whole
    found = []
    for entry in entries:
        try:
            found.append(kind.model_validate(entry, extra="ignore"))
        except ValidationError as error:
            unreadable.append(_sentence(what, entry, error))
    return found


def _sentence(what: str, entry: Any, error: ValidationError) -> str:
    """Cannot read the assignment of run 7f3kq0a1b2: spec.strategy: Input should be …"""
    first = error.errors()[0]
    run_id = entry.get("run_id") if isinstance(entry, dict) else None
    subject = f"the {what} of run {run_id}" if run_id else f"{'an' if what[0] in 'aeiou' else 'a'} {what}"
    field = ".".join(str(place) for place in first["loc"]) or "it"
    return (
        f"The worker cannot read {subject} ({field}: {first['msg']}) and skips it. Dashboard and worker may be "
        "of different versions: upgrade the older one."
    )

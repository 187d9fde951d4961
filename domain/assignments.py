"""The desired state that nodes get: tasks of attempts, checks of a preflight, checkpoints to send again, Slurm jobs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from domain.spec import RunSpec


class ResumeFrom(BaseModel):
    """The checkpoint an attempt starts from, and where its node downloads it."""

    model_config = ConfigDict(frozen=True)

    checkpoint_id: int
    name: str
    sha256: str
    size_bytes: int
    download_path: str
    """Path on the server, below its address."""


class ProfileRequest(BaseModel):
    """The steps that the chosen ranks of one node record."""

    model_config = ConfigDict(frozen=True)

    id: Annotated[str, Field(pattern=r"[a-z0-9]{10}")]
    first_step: int
    """The first recorded optimizer step, counted from 1 since the attempt's start."""
    steps: int
    ranks: list[int]
    until: float
    """Seconds since the epoch after which no rank starts recording any more."""


class Assignment(BaseModel):
    """One node's task of one attempt, for its worker to run or to stop."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    attempt: int
    fence: int
    """The fencing token: grows with every attempt of every run; a worker with an older one is answered 409."""
    node_rank: int
    action: Literal["run", "stop"]
    spec: RunSpec
    devices: list[str]
    device_kind: Literal["cuda", "cpu"]
    master_addr: str | None = None
    master_port: int | None = None
    grace_s: float | None = None
    """Seconds it has to save when it stops; None (from an older server): the spec's grace period."""
    may_start: bool = True
    """False until the preflight has passed: no rank starts before."""
    is_known: bool = False
    """Whether the node has reported on it: a worker with no trace of it on disk did not start it."""
    stacks_requested_at: float | None = None
    """When somebody last asked for the ranks' stack traces."""
    profile: ProfileRequest | None = None
    ends_delivery: bool = False
    """Whether what the ended attempt has still to send is to stay on the node."""
    resume_from: ResumeFrom | None = None
    secrets: Annotated[dict[str, str], Field(exclude=True, repr=False)] = {}
    """The values of the spec's secrets; in no file and no message but the server's answer to its node."""
    secrets_problem: str | None = None
    """Why the server cannot give them, in a sentence."""
    uid: str = ""
    """Unique even across restored stores, which reuse fencing tokens."""
    store: str = ""
    """The identity of the store that assigned it."""
    by: str = ""
    """Who launched the run; empty from an older server."""
    token: str = ""
    """Speaks for this task and nothing else; empty from an older server."""

    @property
    def label(self) -> str:
        """RUN/ATTEMPT/UID, which identifies the attempt in every request about it."""
        return f"{self.run_id}/{self.attempt}/{self.uid}"

    def is_of(self, other: Assignment) -> bool:
        """Whether both belong to the same attempt; those without a uid (older versions) are compared by fence."""
        same_uid = not (self.uid and other.uid) or self.uid == other.uid
        return same_uid and (self.run_id, self.attempt, self.fence) == (
            other.run_id,
            other.attempt,
            other.fence,
        )


class CheckPeer(BaseModel):
    """A node that must be reached."""

    model_config = ConfigDict(frozen=True)

    node_rank: int
    address: str
    port: int


class CheckPair(BaseModel):
    """An all-reduce to take part in, with one other node."""

    model_config = ConfigDict(frozen=True)

    rank: Literal[0, 1]
    address: str
    """The address of rank 0."""
    port: int
    backend: Literal["gloo", "nccl"]


class DesiredCheck(BaseModel):
    """The request to one node in one stage of a preflight, by whom it was asked for or its run was launched."""

    model_config = ConfigDict(frozen=True)

    check_id: int
    node_rank: int
    """Its rank among the checked nodes."""
    stage: int
    """0: facts about itself; 1: reaching the peers; each further stage: an all-reduce."""
    python: str | None = None
    """The interpreter to train with; None: the node's default."""
    by: str = ""
    devices: list[str] = []
    """Devices for the measurement; empty: any GPU of the node."""
    peers: list[CheckPeer] = []
    pair: CheckPair | None = None


class Resend(BaseModel):
    """The request to a node to send a checkpoint of an ended attempt again."""

    model_config = ConfigDict(frozen=True)

    checkpoint_id: int
    run_id: str
    attempt: int
    fence: int
    node_rank: int
    uid: str = ""
    path: str
    """Its name on the server, relative to the attempt's directory on the node."""
    sha256: str
    token: str = ""

    @property
    def label(self) -> str:
        """RUN/ATTEMPT/UID, as of the attempt's assignment."""
        return f"{self.run_id}/{self.attempt}/{self.uid}"


class DesiredJob(BaseModel):
    """The request to a Slurm gateway to submit or end the job of one attempt."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    attempt: int
    fence: int
    action: Literal["run", "stop"]
    spec: RunSpec
    secret: str
    """The secret with which the job's workers join, for this attempt only and until it has ended."""
    grace_s: float
    """Seconds a stopped job may take to end on its own."""
    exclude: list[str] = []
    """Nodes of the cluster in quarantine, which the job is not to get."""


MAX_STEPS = 200
MAX_RANKS = 8
"""Ranks of one profile: each sends a trace of megabytes."""

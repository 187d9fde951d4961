"""What reads return: plain frozen objects that know nothing of the database."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from domain.messages import Point, StackFrame, State
from domain.protocol import PROTOCOL
from domain.spec import RunSpec


@dataclass(frozen=True)
class Takeover:
    """Where an attempt goes on from the one before, and what it does differently, in a few words."""

    attempt: int
    text: str


@dataclass(frozen=True)
class RunView:
    """A run as lists and its page show it."""

    id: str
    name: str
    project: str
    state: State
    reason: str | None
    message: str | None
    next_step: str | None
    """What to try after a failure, in a sentence."""
    error: dict[str, Any] | None
    world_size: int
    """These, `lr` and `global_batch_size` are the latest attempt's: on fewer nodes they may be different."""
    nodes: int
    attempt: int
    lost_contact: bool
    silent_s: float | None
    """Seconds since its most silent node was heard, while it is live."""
    silent_nodes: list[str]
    """Those not heard of for longer than is usual."""
    step: int | None
    total_steps: int | None
    epoch: float | None
    last_loss: float | None
    loss_not_finite_since: int | None
    """Where the loss is NaN or infinite: the first step at which it was what it is now."""
    throughput: float | None
    """Samples per second over all ranks, as last logged."""
    throughput_mean: float | None
    progress: float | None
    """0 to 1, when the number of steps is known."""
    eta_s: float | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    stop_requested_at: float | None
    kill_at: float | None
    """While it is ended: when what is left of it is killed."""
    waiting_for: str | None
    """What it waits for in the queue, before it starts, or to have ended."""
    expected_start_at: float | None
    """While it is queued, where that can be foretold."""
    finding: str | None
    """What is wrong with the latest attempt as it trains, in a line; None when nothing is known."""
    base_lr: float | None
    lr: float | None
    """The rate it was launched with."""
    last_lr: float | None
    """The rate that the script said last."""
    inferred: list[str]
    """Which of epoch, last_loss, throughput and last_lr were read from the script's output, and not logged by it."""
    global_batch_size: int | None
    spec: RunSpec
    """As it was launched."""
    takeovers: list[Takeover] = field(default_factory=list)
    """Of a single run, for its curves."""
    attention: str | None = None
    """Why a person should look at it, in a word or two; None when nobody needs to (`domain.attention`)."""


@dataclass(frozen=True)
class LiveAttempt:
    """An attempt that nodes are at work on, and when the most silent of them was last heard."""

    run_id: str
    attempt: int
    fence: int
    last_heard: float


@dataclass(frozen=True)
class TaskView:
    """One node's share of an attempt, with the command really started there."""

    node_rank: int
    node: str
    devices: list[str]
    state: State
    pid: int | None
    argv: list[str] | None
    env: dict[str, str] | None
    cwd: str | None
    exit_code: int | None
    message: str | None
    interpreter: dict[str, Any] | None
    """Of the Python that trains there: its path, and the versions of python, torch, CUDA and NCCL."""


@dataclass(frozen=True)
class AttemptView:
    """One execution of a run."""

    fence: int
    number: int
    state: State
    reason: str | None
    message: str | None
    next_step: str | None
    error: dict[str, Any] | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    resumed_from: str | None
    """Name of the checkpoint it started from."""
    world_size: int
    """Ranks, as far as it has been placed; else as many as the run was launched for."""
    changes: dict[str, Any]
    """Fields of the run's spec that are different for it: nodes, accumulate, batch_size, lr."""
    parts: list[TaskView]


@dataclass(frozen=True)
class Segment:
    """The points one attempt contributes to a series."""

    attempt: int
    points: list[Point]


@dataclass(frozen=True)
class SeriesView:
    """A curve of a run over its attempts."""

    name: str
    source: str
    count: int
    not_finite_since: int | None
    segments: list[Segment]

    @property
    def points(self) -> list[Point]:
        """All segments joined."""
        return [point for segment in self.segments for point in segment.points]


@dataclass(frozen=True)
class CheckpointView:
    """A checkpoint of a run."""

    id: int
    name: str
    attempt: int
    step: int | None
    size_bytes: int
    received_bytes: int
    sha256: str
    complete: bool
    created_at: float
    loss: float | None
    """Logged at its step: the validation loss where there is one."""
    loss_name: str | None
    latest: bool
    best: bool
    """The lowest loss, among validation losses where there are any."""
    prefix: str | None
    """What every parameter's name begins with without need; can be taken off on download."""
    trouble: str | None = None
    """One sentence while it cannot be stored."""


@dataclass(frozen=True)
class FindingView:
    """Something wrong with an attempt: what was seen, what it means, how to mend it."""

    attempt: int
    node_rank: int
    kind: str
    evidence: str
    meaning: str
    mend: str
    first_at: float
    gone_at: float | None
    """When it was no longer so; None while it is."""


@dataclass(frozen=True)
class RankView:
    """One rank of the latest attempt in figures, as the probe saw it last."""

    rank: int
    node: str
    step: int
    """Optimizer steps it has made in this attempt."""
    step_time_s: float | None
    data_wait_s: float | None
    """Of a step, spent waiting for the data loader."""
    peak_memory_bytes: int | None
    """On a GPU what torch had allocated there, else the process's resident size."""
    at: float
    """By its node's clock."""


@dataclass(frozen=True)
class NodeStacks:
    """Where the ranks of one node stood."""

    node_rank: int
    node: str
    at: float
    """By the node's clock."""
    ranks: dict[int, list[StackFrame]]
    """Innermost frame first."""


@dataclass(frozen=True)
class StacksView:
    """Answers to the newest question where every rank stands."""

    requested_at: float | None
    complete: bool
    """Every node has answered."""
    nodes: list[NodeStacks]


@dataclass(frozen=True)
class HistoryView:
    """One line of what happened when."""

    at: float
    attempt: int | None
    text: str


@dataclass(frozen=True)
class FileView:
    """A mirrored file."""

    id: int
    attempt: int
    node_rank: int
    path: str
    generation: int
    size_bytes: int


@dataclass(frozen=True)
class DeviceView:
    """One slot of a node and the run that has it."""

    id: str
    kind: str
    name: str
    memory_bytes: int | None
    run_id: str | None
    attempt: int | None
    foreign: bool
    """Processes that are not ours occupy it."""
    rank: int | None = None
    """Which of the run's ranks computes there."""


@dataclass(frozen=True)
class NodeView:
    """A node as people see it."""

    id: str
    name: str
    state: str
    """alive, no contact, or lost."""
    draining: bool
    """Nothing new starts there, because somebody asked for it."""
    hostname: str
    address: str
    slots: int
    free: int
    """Slots that can be given to a run."""
    devices: list[DeviceView]
    labels: dict[str, str]
    info: dict[str, Any]
    load: dict[str, Any] | None
    last_seen: float
    silent_s: float
    protocol: int = PROTOCOL
    """The version of the messages that its worker speaks."""
    upgrade: str | None = None
    """What is to be upgraded, and how, before it gets runs; None where nothing is."""
    unknown: list[dict[str, Any]] = field(default_factory=list)
    """What it trains or keeps that this store does not know: run_id, attempt, store, devices, folder."""
    pool: str = ""
    """slurm: a gateway to a Slurm cluster; slurm:…: a node of one of its jobs; empty: a node of ours."""


@dataclass(frozen=True)
class JoinTokenView:
    """A join token that was made for somebody, without its secret."""

    id: str
    name: str
    """What it was made for, in the words of whoever made it."""
    hint: str
    """What the secret begins with, to tell one from another."""
    created_at: float
    expires_at: float
    revoked_at: float | None
    last_used_at: float | None
    uses: int
    """How often a worker joined with it."""


@dataclass(frozen=True)
class PreflightCell:
    """One thing looked at on one node, or on the way from it to a peer."""

    row: str
    """What was looked at: alive, interpreter, torch, port, reach, disk, clock, …"""
    node: str
    peer: str | None
    state: str
    """ok, failed, warning (worth knowing, stops nothing), waiting or skipped."""
    value: str
    """What was found, in a few words."""
    mend: str
    """What to do about it; empty where nothing needs doing."""


@dataclass(frozen=True)
class CheckView:
    """A preflight: whether some nodes can train together."""

    id: int | None
    """None for what a run found before it started."""
    asked_at: float
    ended_at: float | None
    run_id: str | None
    """The run that it was made for."""
    nodes: list[str]
    cells: list[PreflightCell]
    bandwidth: list[list[float | None]]
    """Bytes per second between two nodes, in the order of `nodes`; None where it was not measured."""

    @property
    def failed(self) -> list[PreflightCell]:
        """The red cells."""
        return [cell for cell in self.cells if cell.state == "failed"]

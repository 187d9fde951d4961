"""The results of queries: plain frozen objects, independent of the database."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from domain.checkpoints.contents import Kind
from domain.collectives import CollectivesVerdict
from domain.liveness import Contact
from domain.messages import LIVE_STATES, Delivery, Point, StackFrame, State
from domain.protocol import PROTOCOL
from domain.series.goals import BaselineChange
from domain.spec import RunSpec
from domain.text.formats import agree, as_list, duration_words, part_of
from domain.watched_views import WatchedView


@dataclass(frozen=True)
class AttemptChange:
    """The start of a later attempt, and its differences from the previous one in a few words."""

    attempt: int
    text: str


# Decide which runs need a person now: one rule for the API, the table of runs and a run's page.

FAILED_LATELY_S = 24 * 3600.0
HUNG, NOT_A_NUMBER, NO_CONTACT, WARNING, FAILED = "hung", "NaN loss", "no contact", "warning", "failed"
_KINDS = {"hung": HUNG, "loss is not a number": NOT_A_NUMBER}


def attention(
    state: State,
    finding: str | None,
    lost_contact: bool,
    last_loss: float | None,
    ended_at: float | None,
    now: float,
) -> str | None:
    """Why a run needs a person, in a word or two; None when it does not.

    `finding` is the line `RunView.finding`. A live run needs attention for a hang, a non-finite loss, silent nodes,
    or any other finding, in this order. An ended run needs it for a day when it failed, or succeeded with a
    non-finite loss, but not when a person stopped it."""
    has_bad_loss = last_loss is not None and not math.isfinite(last_loss)
    if state in LIVE_STATES:
        return _of_live(finding, lost_contact, has_bad_loss)
    if ended_at is None or now - ended_at > FAILED_LATELY_S:
        return None
    if state == State.FAILED:
        return FAILED
    return NOT_A_NUMBER if state == State.SUCCEEDED and has_bad_loss else None


def _of_live(finding: str | None, lost_contact: bool, has_bad_loss: bool) -> str | None:
    kind = _KINDS.get(finding.partition(":")[0]) if finding else None
    if kind == HUNG:
        return HUNG
    if has_bad_loss or kind == NOT_A_NUMBER:
        return NOT_A_NUMBER
    if lost_contact:
        return NO_CONTACT
    return WARNING if finding else None


@dataclass(frozen=True)
class DeliveryView:
    """The data that nodes have still to send of a run whose processes have ended."""

    sent_bytes: int
    total_bytes: int
    seconds_left: float | None
    """At the rate so far; None while it is unknown."""
    has_points: bool
    """Whether points of its curves are among it."""
    has_checkpoints: bool
    """Whether checkpoints may be among it."""
    silent_nodes: list[str]
    """Names of the nodes that cannot be heard."""
    sentence: str
    """The flag beside the state, in words."""


def delivery_view(deliveries: Sequence[Delivery], silent_nodes: Sequence[str], is_ending: bool) -> DeliveryView:
    """Put the deliveries of several nodes together; `is_ending`: a person has ended them."""
    sent_bytes, total_bytes = sum(one.sent_bytes for one in deliveries), sum(one.total_bytes for one in deliveries)
    seconds_left = max((one.seconds_left for one in deliveries if one.seconds_left is not None), default=None)
    if silent_nodes:
        verb = agree(len(silent_nodes), "is", "are")
        sentence = f"what is left could not be sent: {as_list(silent_nodes, 4)} {verb} silent"
    elif is_ending:
        sentence = "sending is ending: the rest stays on its node"
    else:
        sentence = f"sending what is left{_progress_words(sent_bytes, total_bytes, seconds_left)}"
    return DeliveryView(
        sent_bytes,
        total_bytes,
        seconds_left,
        has_points=any(one.has_points for one in deliveries),
        has_checkpoints=any(one.has_checkpoints for one in deliveries),
        silent_nodes=list(silent_nodes),
        sentence=sentence,
    )


def _progress_words(sent_bytes: int, total_bytes: int, seconds_left: float | None) -> str:
    if not total_bytes:
        return ""
    words = f": {part_of(sent_bytes, total_bytes)}"
    return words if seconds_left is None else f"{words}, {duration_words(seconds_left)}"


@dataclass(frozen=True)
class RunView:
    """A run as shown in lists and on its page."""

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
    """`world_size`, `nodes`, `lr` and `global_batch_size` are the latest attempt's and may differ on fewer nodes."""
    nodes: int
    attempt: int
    lost_contact: bool
    silent_s: float | None
    """Seconds since the last heartbeat of its most silent node, while it is live."""
    silent_nodes: list[str]
    """Names of its nodes without a heartbeat for `domain.liveness.SILENT_AFTER_S`."""
    step: int | None
    total_steps: int | None
    epoch: float | None
    last_loss: float | None
    loss_not_finite_since: int | None
    """Where the loss is NaN or infinite: the first step since which it has that value."""
    throughput: float | None
    """Samples per second over all ranks, as last logged."""
    throughput_mean: float | None
    progress: float | None
    """0 to 1, by steps, else by epochs; None when neither number is known."""
    eta_s: float | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    stop_requested_at: float | None
    kill_at: float | None
    """While it is ending: when its remaining processes are killed."""
    waiting_for: str | None
    """What it waits for: in the queue, before it starts, or while it ends."""
    expected_start_at: float | None
    """The expected start while it is queued; None when it is unknown."""
    finding: str | None
    """The most important finding of the latest attempt, in a line; None when there is none."""
    base_lr: float | None
    lr: float | None
    """The learning rate it was launched with."""
    last_lr: float | None
    """The learning rate the script logged last."""
    inferred: list[str]
    """Those of epoch, last_loss, throughput and last_lr that were parsed from the output instead of logged."""
    global_batch_size: int | None
    spec: RunSpec
    """The spec it was launched with."""
    current_epoch: float | None = None
    """The epoch it is in, counted from 1; as it is logged where that is a fraction or `total_epochs` is unknown."""
    total_epochs: int | None = None
    attempt_changes: list[AttemptChange] = field(default_factory=list)
    """The starts of its later attempts, for its curves; only when a single run is read."""
    attention: str | None = None
    """Why it needs a person, in a word or two; None when it does not (`domain.views`)."""
    tags: list[str] = field(default_factory=list)
    note: str | None = None
    """Plain text of a person."""
    archived: bool = False
    pinned: bool = False
    imported_from: str | None = None
    """The format it was imported from (tensorboard, wandb, archive, …); None: it was launched here."""
    baseline: bool = False
    """Whether it is the baseline of its project."""
    by: str | None = None
    """The person who launched or imported it."""
    via: str | None = None
    """What launched it for them: a token, sweep or alert."""
    delivery: DeliveryView | None = None
    """The data still to be sent after its end; None when everything is stored or stays on its node."""
    watched: WatchedView | None = None
    """What somebody else started; None: it was launched here, or imported."""
    against_baseline: BaselineChange | None = None
    """Its result beside that of its project's baseline; only when a single run is read."""


@dataclass(frozen=True)
class LiveAttempt:
    """A live attempt, and the last heartbeat of its most silent node."""

    run_id: str
    attempt: int
    fence: int
    last_heard: float


@dataclass(frozen=True)
class TaskView:
    """One node's task of an attempt, with the command actually started there."""

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
    """The Python that trains there: its path, and the versions of python, torch, CUDA and NCCL."""


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
    """Number of ranks; before it is placed, the number the run was launched for."""
    changes: dict[str, Any]
    """Fields of the run's spec that differ for this attempt: nodes, accumulate, batch_size, lr."""
    tasks: list[TaskView]
    by: str | None = None
    """The person who launched or resumed it, or whose run it is."""
    via: str | None = None
    """What opened it for them: a token, sweep, alert or the run's policy."""
    stop_requested_by: str | None = None


@dataclass(frozen=True)
class Segment:
    """The points that one attempt, or one life of its script, contributes to a series."""

    attempt: int
    points: list[Point]
    count: int
    """All that were logged, of which the points may be a selection."""
    repeats: int
    """Those of them that stand at no higher step than one before them."""


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
        """The points of all segments."""
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
    """The loss logged at its step: the validation loss where there is one."""
    loss_name: str | None
    latest: bool
    best: bool
    """Whether it has the lowest validation loss."""
    prefix: str | None
    """A removable prefix of every parameter's name; the download can remove it."""
    step_is_inferred: bool = False
    """Whether its name has no step: it is that of what the script logged or printed around its saving."""
    is_part: bool = False
    """Whether it is only a part of a checkpoint by its name, such as an optimizer's state: nothing resumes from it."""
    trouble: str | None = None
    """One sentence while it cannot be stored."""
    is_asked_for_again: bool = False
    """Whether its node is asked to send it again."""
    merged_from: int | None = None
    """The id of the checkpoint that it was merged from: nothing resumes from it on its own."""
    merged_from_name: str | None = None
    """None where that was deleted since."""
    pinned_at: float | None = None
    """When a person pinned it: no retention rule deletes it."""
    pinned_by: str | None = None
    deleted_at: float | None = None
    deleted_by: str | None = None
    """Who deleted it; None: the retention rule."""
    deleted_why: str | None = None
    """The rule that it was deleted by."""
    holds: list[Kind] | None = None
    """The kinds of state in it; None where its node has not read it."""


@dataclass(frozen=True)
class FindingView:
    """Something wrong with an attempt: the evidence, its meaning, and the fix."""

    attempt: int
    node_rank: int
    kind: str
    evidence: str
    meaning: str
    fix: str
    first_at: float
    gone_at: float | None
    """When it was resolved; None while it persists."""

    def beyond(self, text: str) -> FindingView:
        """Return the finding without the evidence and the fix that a text above it states already."""
        evidence, fix = ("" if states(text, sentence) else sentence for sentence in (self.evidence, self.fix))
        return replace(self, evidence=evidence, fix=fix)


COMPARED_CHARACTERS = 200


def states(text: str, sentence: str) -> bool:
    """Whether a text has a sentence, be it without the capital letter, the full stop or the end of a long one."""
    inner = sentence[1:COMPARED_CHARACTERS].rstrip(". ")
    return bool(inner) and inner in text


@dataclass(frozen=True)
class RankView:
    """The latest performance figures of one rank of the latest attempt, from the probe."""

    rank: int
    node: str
    step: int
    """Optimizer steps it has made in this attempt."""
    step_time_s: float | None
    data_wait_s: float | None
    """Seconds of a step spent waiting for the data loader."""
    peak_memory_bytes: int | None
    """On a GPU the memory allocated by torch, else the process's resident size."""
    at: float
    """Seconds since the epoch by its node's clock."""


@dataclass(frozen=True)
class PositionView:
    """Where a rank stands: its oldest collective that is not over, else its latest."""

    sequence: int | None
    operation: str | None
    sizes: list[list[int]]
    retired: bool | None


@dataclass(frozen=True)
class CollectivesView:
    """The ranks' collectives when they were asked last, and where the ranks disagree."""

    ranks: dict[int, PositionView]
    verdict: CollectivesVerdict | None


@dataclass(frozen=True)
class NodeStacks:
    """The stack traces of one node's ranks."""

    node_rank: int
    node: str
    at: float
    """By the node's clock."""
    ranks: dict[int, list[StackFrame]]
    """Innermost frame first."""


@dataclass(frozen=True)
class StacksView:
    """The answers to the latest request for stack traces."""

    requested_at: float | None
    complete: bool
    """Whether every node has answered."""
    nodes: list[NodeStacks]


@dataclass(frozen=True)
class HistoryView:
    """One line of a run's history."""

    at: float
    attempt: int | None
    text: str
    by: str | None = None
    """The person who did it; None: the program or a worker."""
    via: str | None = None
    """What acted for them: a token, sweep, alert or worker."""


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
class Quarantine:
    """Since when and why nothing new starts on a device or a node."""

    since: float
    why: str


@dataclass(frozen=True)
class DeviceView:
    """One slot of a node, and the run that uses it."""

    id: str
    kind: str
    name: str
    memory_bytes: int | None
    run_id: str | None
    attempt: int | None
    foreign: bool
    """Whether processes that are not ours use it."""
    rank: int | None = None
    """The run's rank that computes there."""
    quarantine: Quarantine | None = None
    """Its own, or its node's."""
    private: bool = False
    """Whether a run uses it that is hidden from the visitor; its id is then omitted."""

    @property
    def has_run(self) -> bool:
        """Whether a run uses it."""
        return self.run_id is not None or self.private


@dataclass(frozen=True)
class NodeView:
    """A node as shown to people."""

    id: str
    name: str
    state: Contact
    draining: bool
    """Whether somebody asked that nothing new starts there."""
    hostname: str
    address: str
    slots: int
    free: int
    """Number of slots that a run can get."""
    devices: list[DeviceView]
    labels: dict[str, str]
    info: dict[str, Any]
    load: dict[str, Any] | None
    last_seen: float
    silent_s: float
    protocol: int = PROTOCOL
    """The protocol version of its worker."""
    upgrade: str | None = None
    """Which side to upgrade before it gets runs, and how; None when the versions match."""
    unknown: list[dict[str, Any]] = field(default_factory=list)
    """Attempts on it that this store does not know: run_id, attempt, store, devices, folder."""
    pool: str = ""
    """slurm: a gateway to a Slurm cluster; slurm:…: a node of one of its jobs; empty: a node of ours."""
    quarantine: Quarantine | None = None
    """Of the whole node."""
    left_out: list[str] = field(default_factory=list)
    """Of a gateway to Slurm: a sentence for each node of the cluster in quarantine."""
    drained_by: str | None = None
    """The person who asked that nothing new starts there."""


@dataclass(frozen=True)
class JoinTokenView:
    """A join token, without its secret."""

    id: str
    name: str
    """The purpose given by the person who made it."""
    hint: str
    """The beginning of the secret, to tell tokens apart."""
    created_at: float
    expires_at: float
    revoked_at: float | None
    last_used_at: float | None
    uses: int
    """Number of workers that joined with it."""
    by: str | None = None
    """The person who made it."""


@dataclass(frozen=True)
class PreflightCell:
    """The result of one check on one node, or of the connection from it to a peer."""

    row: str
    """The name of the check: alive, interpreter, torch, port, reach, disk, clock, …"""
    node: str
    peer: str | None
    state: str
    """ok, failed, warning (worth knowing, stops nothing), waiting or skipped."""
    value: str
    """The result in a few words."""
    fix: str
    """The fix; empty where none is needed."""


@dataclass(frozen=True)
class CheckView:
    """A preflight: whether some nodes can train together."""

    id: int | None
    """None for the preflight of a run before it starts."""
    asked_at: float
    ended_at: float | None
    run_id: str | None
    """The run it belongs to; None for one on demand."""
    nodes: list[str]
    cells: list[PreflightCell]
    bandwidth: list[list[float | None]]
    """Bytes per second between two nodes, in the order of `nodes`; None where it was not measured."""
    by: str | None = None
    """The person who asked for it, or whose run it is of."""

    @property
    def failed(self) -> list[PreflightCell]:
        """The failed cells."""
        return [cell for cell in self.cells if cell.state == "failed"]


def with_attention(run: RunView, now: float) -> RunView:
    """The run with its `attention` field set; nothing can be done here about imported ones."""
    if run.imported_from:
        return run
    why = attention(run.state, run.finding, run.lost_contact, run.last_loss, run.ended_at, now)
    return replace(run, attention=why) if why else run

"""The messages that workers send: states and failure reasons of attempts, and facts about nodes."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationInfo, field_validator

from domain.checkpoints.contents import CheckpointContents
from domain.device_memory import DeviceMemory
from domain.protocol import PROTOCOL
from domain.requests.bounds import Count, Facts, Finite, Integer, Moment, Offset, Port, Rank, Seconds


class State(StrEnum):
    """The state of an attempt; a run's state is that of its latest attempt."""

    QUEUED = "queued"
    """Requested, not yet placed on any node."""
    STARTING = "starting"
    """Placed on its nodes; not all ranks exist yet."""
    RUNNING = "running"
    """All ranks exist; of ranks that the script starts itself, the first made a step or joined a process group."""
    STOPPING = "stopping"
    """Asked to end; at least one process still exists."""
    SUCCEEDED = "succeeded"
    """Every rank ended with exit code 0."""
    FAILED = "failed"
    """It ended with an error; `reason` and `message` say why."""
    STOPPED = "stopped"
    """It ended because a person asked for it."""

    @property
    def is_terminal(self) -> bool:
        """True for the three states that never change again."""
        return self in TERMINAL_STATES


TERMINAL_STATES = frozenset({State.SUCCEEDED, State.FAILED, State.STOPPED})
LIVE_STATES = frozenset({State.STARTING, State.RUNNING, State.STOPPING})


class Reason(StrEnum):
    """Why an attempt failed: a short value for filters; `message` is the sentence for people."""

    SCRIPT_ERROR = "script error"
    """A rank raised an exception."""
    EXIT_CODE = "exit code"
    """A rank ended with an exit code other than 0 and left no traceback."""
    KILLED = "killed"
    """A rank or the launcher was ended by a signal that Rankzero did not send."""
    OUT_OF_MEMORY = "out of memory"
    """The node or the GPU ran out of memory."""
    TIMED_OUT = "timed out"
    """A collective operation timed out because a rank never joined it."""
    PORT_IN_USE = "port in use"
    """A port that the run needs is in use by another program."""
    DISK_FULL = "disk full"
    """The node had no space left."""
    SCRIPT_MISSING = "script missing"
    """The script, folder or interpreter does not exist on the node."""
    LAUNCH_FAILED = "launch failed"
    """torchrun could not be started, or ended before any rank existed."""
    NODE_LOST = "node lost"
    """A node was silent for longer than allowed, or came back without its processes."""
    RESUME_FAILED = "resume failed"
    """The node could not get the checkpoint to resume from."""
    HUNG = "hung"
    """Its ranks made no step for too long, and the spec says that a hang ends the run."""
    ENVIRONMENT = "environment"
    """A node could not build the environment of the run's lock file."""
    PREFLIGHT = "preflight"
    """Its nodes cannot train together: nothing was started."""
    TIME_LIMIT = "time limit"
    """Its Slurm job reached its time limit."""


class RankError(BaseModel):
    """The error of the first rank to fail."""

    model_config = ConfigDict(frozen=True)

    rank: Rank | None = None
    node_rank: Rank | None = None
    exit_code: Integer | None = None
    signal: str | None = None
    exception: str | None = None
    """Type and text, as the traceback's last line has it."""
    file: str | None = None
    line: Integer | None = None
    traceback: str | None = None
    at: Moment | None = None
    """Seconds since the epoch by the failing node's clock."""
    is_consequence: bool = False
    """The rank only noticed that another one was gone or late."""
    fault: Literal["device", "node"] | None = None
    """The hardware that is at fault, where the end shows it."""
    memory: DeviceMemory | None = None
    """What filled its device, if the allocation failed for which it ended."""


class Reached(BaseModel):
    """The result of one node's attempt to reach another node's port."""

    model_config = ConfigDict(frozen=True)

    node_rank: Rank
    """Whose port it is."""
    address: str
    port: Port
    took_s: Seconds | None = None
    trouble: Literal["silent", "refused", "no route", "foreign"] | None = None
    problem: str | None = None
    """What happened instead of an answer, in a few words."""


class NodeCheck(BaseModel):
    """Facts about a node, collected before a run on several nodes or for a preflight on demand."""

    address: str
    """The address at which other nodes reach it."""
    interface: str | None = None
    """The network card that has the address; None: there is none."""
    interface_is_up: bool = True
    port: Port | None = None
    """The port on which it listens for the other nodes during the preflight."""
    port_problem: str | None = None
    interpreter: Facts = {}
    """Facts about the Python that trains; `problem` says why it cannot be used."""
    devices: list[str] = []
    """The GPUs that were checked; empty on a CPU node."""
    foreign_devices: list[str] = []
    disk_path: str = ""
    disk_free_bytes: Count | None = None
    clock_offset_s: Offset | None = None
    """Its clock minus the server's."""
    clock_error_s: Seconds = 0.0
    """Uncertainty of the offset: half the round-trip time to the server."""
    code: str | None = None
    """SHA-256 of the code it would run; None where the run has no code to compare."""
    is_prepared: bool = False
    """Whether script, folders, links and the checkpoint to start from are present."""
    problem: str | None = None
    """Why the run's directory cannot be prepared on this node."""
    reached: list[Reached] = []


class Measured(BaseModel):
    """An all-reduce between two nodes."""

    bytes_per_s: Finite | None = None
    problem: str | None = None


class CheckAnswer(BaseModel):
    """A node's answer to one stage of a preflight."""

    stage: Count
    facts: NodeCheck | None = None
    reached: Annotated[list[Reached], Field(max_length=10_000)] = []
    measured: Measured | None = None


class CheckpointFetch(BaseModel):
    """A node's progress in downloading the checkpoint that the attempt starts from."""

    name: Annotated[str, Field(max_length=1024)]
    done_bytes: Count
    size_bytes: Count
    is_verified: bool = False
    """The download is complete and its SHA-256 agrees with the server's."""


class EnvironmentReport(BaseModel):
    """The environment of a lock file on one node."""

    model_config = ConfigDict(frozen=True)

    kind: Annotated[str, Field(max_length=32)]
    """uv.lock, pylock.toml, requirements.txt, pixi.lock or environment.yml."""
    hash: Annotated[str, Field(max_length=64)] | None = None
    """Equal where the lock, the Python and the platform are; None until it is known."""
    python: Annotated[str, Field(max_length=4096)] | None = None
    state: Literal["building", "ready", "failed"]
    note: Annotated[str, Field(max_length=1000)] = ""
    """What is being done, or how it came to be."""


class PhaseEnd(BaseModel):
    """The end of one phase of a node's start, by the node's clock; of several ranks the last one's."""

    model_config = ConfigDict(frozen=True)

    phase: Annotated[str, Field(max_length=100)]
    at: Moment
    began_at: Moment | None = None
    """None: with the end of the phase before it."""
    note: Annotated[str, Field(max_length=1000)] = ""


class HeldDevice(BaseModel):
    """A device that something still holds after the attempt's processes have ended."""

    model_config = ConfigDict(frozen=True)

    device: Annotated[str, Field(max_length=200)]
    holder: Annotated[str, Field(max_length=1000)]
    """In words: its user, its command, its process id."""


class Delivery(BaseModel):
    """The data that a node has still to send of an attempt that has no process any more."""

    model_config = ConfigDict(frozen=True)

    sent_bytes: Count
    total_bytes: Count
    seconds_left: Seconds | None = None
    """At the rate so far; None while it is unknown."""
    has_points: bool = False
    """Whether points of curves are among it; they go first."""
    has_checkpoints: bool = False
    """Whether a checkpoint is among it, which the next attempt may start from."""


class SeenRanks(BaseModel):
    """The ranks that the probe saw in a command that somebody else started."""

    model_config = ConfigDict(frozen=True)

    ranks: Annotated[list[Rank], Field(max_length=10_000)]
    """Their numbers in the whole run, ascending."""
    world_size: Count | None = None
    """As they know it; the largest, where they disagree."""


class TaskReport(BaseModel):
    """One node's report about its task of an attempt; sent again until it is acknowledged."""

    state: Literal["starting", "running", "stopping", "succeeded", "failed", "stopped"]
    pid: Integer | None = None
    """The supervisor's process id."""
    argv: list[str] | None = None
    env: dict[str, str] | None = None
    """The variables we set, secrets masked; not the whole environment."""
    cwd: str | None = None
    master_addr: str | None = None
    master_port: Port | None = None
    """Rank 0's node chooses these, before the other nodes start."""
    exit_code: Integer | None = None
    ended_at: Moment | None = None
    """With the end: when the last process ended, by the node's clock; it may be told of much later."""
    reason: Reason | None = None
    message: str | None = None
    next_step: str | None = None
    """What to try, in a sentence; None where the message says it all."""
    error: RankError | None = None
    interpreter: Facts | None = None
    """The Python that trains: its path, and the versions of python, torch, cuda and nccl (None where absent)."""
    preflight: NodeCheck | None = None
    """The node's preflight facts, sent before it may start its task of a run on several nodes."""
    fetching: CheckpointFetch | None = None
    """Sent repeatedly during the download, and once when it is complete."""
    environment: EnvironmentReport | None = None
    """Sent repeatedly while it is built, and once when it is ready."""
    doing: Annotated[str, Field(max_length=300)] | None = None
    """What the node does before it can start, as a part of a sentence: brings imagenet: 1 of 3 GB."""
    timeline: Annotated[list[PhaseEnd], Field(max_length=50)] | None = None
    """All phases of its start that have ended so far."""
    held: Annotated[list[HeldDevice], Field(max_length=1000)] = []
    """With the end: its devices that are not free."""
    delivery: Delivery | None = None
    """With the end: the data still to be sent; None: none, now or later."""
    seen: SeenRanks | None = None
    """Of a watched command: sent whenever more ranks are seen; None: nothing new."""


class Finding(BaseModel):
    """Something wrong with a run that trains: the evidence, its meaning, and the fix."""

    model_config = ConfigDict(frozen=True)

    kind: Annotated[str, Field(min_length=1, max_length=100)]
    """Short, for people and filters: "hung", "set_epoch never called"."""
    evidence: Annotated[str, Field(max_length=8000)]
    meaning: Annotated[str, Field(max_length=2000)] = ""
    fix: Annotated[str, Field(max_length=2000)] = ""


class Findings(BaseModel):
    """Everything that is wrong with a node's task now; always the complete list."""

    findings: Annotated[list[Finding], Field(max_length=100)]


class StackFrame(BaseModel):
    """One line of a rank's Python stack."""

    file: Annotated[str, Field(max_length=4096)]
    line: Integer
    function: Annotated[str, Field(max_length=1000)]


class Stacks(BaseModel):
    """The stack traces of one node's ranks, collected on request."""

    requested_at: Moment
    """The time of the request that is answered, by the server's clock."""
    at: Moment
    ranks: dict[Rank, Annotated[list[StackFrame], Field(max_length=200)]]
    """Innermost frame first; empty for a rank whose stack could not be read."""


Point = tuple[Integer, Annotated[float, Field(allow_inf_nan=True)], Annotated[float, Field(allow_inf_nan=False)]]
"""(step, value, wall time in seconds since the epoch): only the value may be NaN or infinite."""
MAX_SERIES = 10_000
"""Maximum number of names of series of one attempt and kind of source; the rest are left out and reported."""
PointKind = Literal["events", "printed", "probe", "hardware"]
"""Where points come from; one tag of two of them is two series."""
PointChoice = Literal[PointKind, "all"]
SCRIPT_KINDS: tuple[PointKind, ...] = ("events", "printed")
"""What the script itself reports; where both have a tag, the first one counts."""


class BatchHead(BaseModel):
    """The byte range of one file that points were read from."""

    path: str
    """Relative to the attempt's directory on the node."""
    generation: Count
    start: Count
    end: Count
    source: PointKind = "events"

    @field_validator("end")
    @classmethod
    def _ends_behind_its_start(cls, end: int, info: ValidationInfo) -> int:
        if end < info.data.get("start", 0):
            raise ValueError(f"must be at least start, {info.data['start']}, got {end}")
        return end


class PointBatch(BatchHead):
    """Points read from one byte range of one file; they are stored together with the new offset, or not at all."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    series: dict[str, list[Point]]


class Device(BaseModel):
    """One slot of a node: a GPU, or a CPU slot."""

    id: str
    """GPU UUID, or cpu:0, cpu:1, …"""
    kind: Literal["cuda", "cpu"]
    name: str
    memory_bytes: Count | None = None


class HeldAttempt(BaseModel):
    """An attempt that a node still trains, or whose end it has not reported yet."""

    run_id: Annotated[str, Field(max_length=32)]
    attempt: Integer
    fence: Integer
    node_rank: Integer = 0
    uid: Annotated[str, Field(max_length=32)] = ""
    store: Annotated[str, Field(max_length=32)] = ""
    """The identity of the store that started it."""
    devices: list[str] = []
    """The devices its processes may still use; empty when it has ended."""
    folder: Annotated[str, Field(max_length=4096)] = ""
    """Its data on the node."""

    @property
    def label(self) -> str:
        """RUN/ATTEMPT/UID"""
        return f"{self.run_id}/{self.attempt}/{self.uid}"


class NodeFacts(BaseModel):
    """The facts about a node that its worker sends on registration."""

    name: str = Field(min_length=1, max_length=100)
    instance_id: str
    """New at each start of the worker: distinguishes a restart from a second worker with the same name."""
    hostname: str
    address: str
    devices: list[Device]
    labels: dict[str, str] = {}
    pool: Annotated[str, Field(max_length=32)] = ""
    """Empty: a node of ours; `slurm`: a gateway, without devices; `slurm:FENCE`: a node of that attempt's job."""
    protocol: Integer = PROTOCOL
    held: Annotated[list[HeldAttempt], Field(max_length=10_000)] = []
    """All attempts that it has not settled."""
    info: Facts = {}
    """python (path), versions, cores, memory_bytes, platform."""


class DeviceFault(BaseModel):
    """A fault that the driver or the kernel reported of a device."""

    model_config = ConfigDict(frozen=True)

    device: Annotated[str, Field(max_length=200)] = ""
    """Empty: the node."""
    kind: Literal["Xid", "memory errors", "throttled"]
    number: Integer | None = None
    """Which Xid; how many errors."""
    at: Moment
    """By the node's clock."""
    text: Annotated[str, Field(max_length=200)] = ""


class NodeLoad(BaseModel):
    """A sample of a node's load, sent every few seconds."""

    cpu_percent: Finite = 0.0
    memory_used_bytes: Count = 0
    memory_total_bytes: Count = 0
    disk_free_bytes: Count = 0
    disk_total_bytes: Count = 0
    gpus: list[Facts] = []
    """Per GPU: id, utilisation_percent, memory_used_bytes, temperature_c, power_w; foreign: others compute there."""
    address: str | None = None
    """Where other nodes reach it now; the address it registered with may work only on the server's machine."""
    interface: str | None = None
    clock_offset_s: Offset | None = None
    """Its clock minus the server's, measured every half minute."""
    clock_error_s: Seconds | None = None
    """Uncertainty of the offset: half the round-trip time to the server."""
    held: Annotated[list[HeldAttempt], Field(max_length=10_000)] = []
    """All attempts that it has not settled."""
    faults: Annotated[list[DeviceFault], Field(max_length=100)] = []
    """Those of the last minutes; each is sent many times."""
    leaving: bool = False
    """The last sample of a stopped worker: its silence is no fault of the machine."""
    warm_start: str = ""
    """Whether torch is imported ahead of the next launch and with how much memory, or why not."""
    notice: str | None = None
    """One sentence when something is wrong with the node (disk nearly full, GPU sampling not available)."""


class CheckpointOffer(BaseModel):
    """A finished snapshot of a checkpoint that the node offers to upload."""

    path: str
    """Relative to the attempt's directory on the node: its name for people."""
    step: Integer | None = None
    size_bytes: Count
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    written_at: Moment
    prefix: Annotated[str, Field(max_length=200)] | None = None
    """A removable prefix of every parameter's name, such as `module.` from a saved DDP wrapper."""
    task_id: Count | None = None
    """The task that merged it; None: a training saved it."""
    holds: CheckpointContents | None = None
    """The kinds of state in it; None: not read, or from an older worker."""


class JobReport(BaseModel):
    """Slurm's state of one job, in its own terms; sent again until it is acknowledged."""

    job_id: Annotated[str, Field(max_length=64)] | None = None
    """None: it was not submitted."""
    state: Annotated[str, Field(max_length=32)]
    """PENDING, RUNNING, COMPLETED, TIMEOUT … as squeue has it; REFUSED: sbatch did not take it."""
    reason: Annotated[str, Field(max_length=1000)] = ""
    """Why it is in that state: Resources, Priority … ; of a refused one sbatch's sentence."""
    partition: Annotated[str, Field(max_length=200)] = ""
    nodes: Annotated[str, Field(max_length=10_000)] = ""
    """As Slurm writes them: n[0-3]."""
    starts_at: Moment | None = None
    """When Slurm expects a waiting one to start, or when it started."""
    time_limit: Annotated[str, Field(max_length=32)] = ""
    exit_code: Annotated[str, Field(max_length=32)] = ""
    output: Annotated[str, Field(max_length=8000)] = ""
    """The end of what the job printed, where that can be read."""

    @property
    def has_ended(self) -> bool:
        """Whether Slurm has ended all of its processes."""
        return self.state not in LIVE_JOB_STATES


LIVE_JOB_STATES = frozenset(
    "PENDING CONFIGURING RUNNING COMPLETING SUSPENDED STOPPED SIGNALING STAGE_OUT RESIZING "
    "REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT RESV_DEL_HOLD".split()
)
"""The job states of sacct that are not final."""

# Pieces of streams that one request of a worker carries: points, and bytes of files, of any of its attempts.
#
# The body is one line, the JSON list of the pieces' heads, and behind it their contents, one after another.

MOST_BYTES = 2 * 1024 * 1024
"""Of the contents of one request."""
MOST_PIECES = 1000
Number = Annotated[int, Field(ge=0, lt=10**18)]


class PieceHead(BaseModel):
    """What a piece is about; its content is a `PackedBatch` of points, or bytes of the file at `path`."""

    model_config = ConfigDict(frozen=True)

    fence: Number
    node_rank: Number
    label: Annotated[str, Field(max_length=200)] = ""
    """RUN/ATTEMPT/UID, by which a restored store distinguishes the attempt from another with the same number."""
    size_bytes: Number
    """Of the content."""
    path: Annotated[str, Field(max_length=4096)] = ""
    """Empty: the content is a batch of points, which names its file itself."""
    generation: Annotated[int, Field(ge=0, le=2**31)] = 0
    offset: Annotated[int, Field(ge=0, le=2**62)] = 0


class PieceAnswer(BaseModel):
    """The status and body with which a request for this piece alone would be answered."""

    status: int
    body: dict[str, object]


class PieceAnswers(BaseModel):
    """One answer for each piece, in their order."""

    answers: list[PieceAnswer]


class Bundle(BaseModel):
    """The heads and contents of one request."""

    heads: Annotated[list[PieceHead], Field(max_length=MOST_PIECES)]
    contents: list[bytes]

    @field_validator("contents")
    @classmethod
    def _fit_their_heads(cls, contents: list[bytes], info: ValidationInfo) -> list[bytes]:
        if [head.size_bytes for head in info.data.get("heads", [])] != [*map(len, contents)]:
            raise ValueError("must be as long as the heads say")
        return contents

    @classmethod
    def of_body(cls, body: bytes) -> Self:
        """Read a request's body. Raises ValidationError."""
        line, _, payload = body.partition(b"\n")
        heads, contents, at = _HEADS.validate_json(line), list[bytes](), 0
        for head in heads:
            contents.append(payload[at : at + head.size_bytes])
            at += head.size_bytes
        return cls(heads=heads, contents=contents)

    @staticmethod
    def body(heads: Iterable[PieceHead], contents: Iterable[bytes]) -> bytes:
        """Write a request's body."""
        return b"\n".join([_HEADS.dump_json([*heads], exclude_defaults=True), b"".join(contents)])


_HEADS = TypeAdapter(list[PieceHead])

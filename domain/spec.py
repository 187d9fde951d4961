"""What people wish for: the specification of a run, and the share of it one node is told to do."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

LrScaling = Literal["none", "linear", "sqrt"]
Precision = Literal["fp32", "bf16", "fp16"]
Strategy = Literal["ddp", "fsdp", "dp", "single"]
Launcher = Literal["torchrun", "python", "launch"]
OnHang = Literal["report", "end", "resume"]
"""What a hang leads to: a sentence on the page, the run's end, or its end and the next attempt."""
OnLostNode = Literal["wait", "end"]
"""wait: a run whose other ranks still step is left alone; end: it is ended as soon as the node counts as lost."""
LrOnResize = Literal["keep", "scale"]
"""What becomes of the learning rate when an attempt has another number of ranks than the run was launched with."""
Pool = Literal["nodes", "slurm"]
"""Who gives out the devices: our own placement, or a Slurm cluster."""
RUN_ID = re.compile(r"[a-z0-9]{10}")
MAX_ARGUMENT_BYTES = 128 * 1024
"""Linux refuses a longer single argument (MAX_ARG_STRLEN)."""
RESERVED_VARIABLES = frozenset(
    "LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT PYTHONPATH PYTHONHOME PYTHONSTARTUP BASH_ENV ENV PATH".split()
)
RENDEZVOUS_VARIABLES = frozenset(
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT CUDA_VISIBLE_DEVICES".split()
)


def _plain_text(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not contain a NUL character")
    size_bytes = len(value.encode(errors="surrogatepass"))
    if size_bytes >= MAX_ARGUMENT_BYTES:
        rule = "must be shorter than 128 KiB, the longest argument Linux passes to a program"
        raise ValueError(f"{rule}; it has {size_bytes:,} bytes. Put it into a file")
    return value


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _one_line(value: str) -> str:
    if any(ord(c) < 32 or ord(c) == 127 for c in value):
        raise ValueError("must not contain line breaks or control characters")
    return value.strip()


Argument = Annotated[str, AfterValidator(_plain_text)]
Label = Annotated[str, Field(max_length=200), AfterValidator(_plain_text), AfterValidator(_one_line)]
NodeText = Annotated[
    str, Field(min_length=1, max_length=200), AfterValidator(_plain_text), AfterValidator(_one_line)
]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]


SLURM_OPTION = re.compile(r"--([a-z][a-z0-9-]*)(=.*)?")
SLURM_SETS = frozenset(
    "nodes ntasks ntasks-per-node job-name comment parsable wrap array wait test-only signal no-requeue requeue "
    "partition account time export dependency-file batch-script".split()
)
"""Options of sbatch that follow from the rest of the spec, or would make another job of it."""


def _sbatch_option(value: str) -> str:
    found = SLURM_OPTION.fullmatch(_one_line(value))
    if found is None:
        raise ValueError(f"{value!r} must be a long option of sbatch as one word, like --constraint=a100")
    if found[1] in SLURM_SETS:
        raise ValueError(f"--{found[1]} is set by Rankzero for each job, not by a run")
    return value.strip()


def _time_limit(value: str) -> str:
    if not re.fullmatch(r"(\d{1,4}-)?\d{1,6}(:\d{1,2}){0,2}", value.strip()):
        raise ValueError("must be written as sbatch takes it: 90 (minutes), 12:00:00 or 2-12 (days-hours)")
    return value.strip()


TimeLimit = Annotated[Argument, AfterValidator(_time_limit)]
SbatchOption = Annotated[Argument, AfterValidator(_sbatch_option)]


class SlurmOptions(BaseModel):
    """What a Slurm job is submitted with, beside its nodes and devices. `None` means: as the cluster has it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    partition: NodeText | None = None
    account: NodeText | None = None
    time_limit: TimeLimit | None = None
    """As sbatch takes it: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""
    options: Annotated[list[SbatchOption], Field(max_length=100)] = []
    """Further options of sbatch, e.g. `--constraint=a100`."""


class RunSpec(BaseModel):
    """Everything a person decides about a run. `None` means: as the script or recipe has it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_plain_text)]
    """A recipe's name, the absolute path of a script or folder, or a git URL; with `snapshot` only its origin."""
    entry: Argument | None = None
    """The script to start, relative to the folder or the snapshot."""
    snapshot: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """SHA-256 of the code that is unpacked into the working directory of every node."""
    ref: (
        Annotated[str, Field(max_length=250), AfterValidator(_plain_text), AfterValidator(_one_line)] | None
    ) = None
    """Branch, tag or commit of a git URL; the commit it stood for is kept with the snapshot."""
    module: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*$")] | None = None
    name: Label = ""
    project: Label = "default"
    nodes: Annotated[int, Field(ge=1, le=4096)] = 1
    """In words also MIN:MAX, which makes it elastic with `min_nodes` MIN."""
    gpus_per_node: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Processes per node; `None` becomes the free slots of the emptiest node when the run is submitted."""
    batch_size: Count | None = None
    """Samples per GPU and micro-step."""
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Learning rate on one GPU, before `lr_scaling`."""
    lr_scaling: LrScaling = "none"
    warmup_steps: Annotated[int, Field(ge=0, le=1_000_000_000)] | None = None
    epochs: Count | None = None
    max_steps: Count | None = None
    precision: Precision = "fp32"
    accumulate: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    strategy: Strategy = "ddp"
    launcher: Launcher | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    args: Annotated[list[Argument], Field(max_length=10_000)] = []
    env: dict[str, Argument] = {}
    python: Argument | None = None
    workdir: Argument | None = None
    links: dict[str, Argument] = {}
    resume: Annotated[str, Field(max_length=4200)] | None = None
    """RUN or RUN:CHECKPOINT."""
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    """In the queue higher ones come first; of one priority, who came first."""
    labels: Annotated[dict[NodeText, NodeText], Field(max_length=32)] = {}
    """Each must be a label of every node the run gets."""
    on_nodes: Annotated[list[NodeText], Field(max_length=4096)] = []
    """Names of the only nodes it may get; empty: any."""
    wait_for_nodes: bool = False
    stop_grace_s: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 30.0
    probe: bool = True
    """Watch every rank from inside: steps, data waits, stacks."""
    hang_after_s: Annotated[float, Field(ge=1, le=604_800, allow_inf_nan=False)] | None = None
    """Seconds without a step that are a hang; None: 60, or ten median steps where that is longer."""
    on_hang: OnHang = "report"
    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 0
    """Attempts that are opened by themselves, from the last complete checkpoint, after one has failed."""
    min_nodes: Annotated[int, Field(ge=1, le=4096)] | None = None
    """The fewest nodes a later attempt may have, when some are lost; None: as many as the first."""
    elastic: bool = False
    """It starts with `min_nodes` to `nodes` nodes, as there are, and follows what comes and goes at a checkpoint."""
    on_lost_node: OnLostNode = "wait"
    lr_on_resize: LrOnResize = "keep"
    torchrun_restarts: Annotated[int, Field(ge=0, le=1000)] = 0
    """torchrun's own --max-restarts: ranks start again in the same attempt, without us."""
    pool: Pool = "nodes"
    slurm: SlurmOptions = SlurmOptions()

    @model_validator(mode="before")
    @classmethod
    def _nodes_may_be_a_range(cls, given: Any) -> Any:
        nodes = given.get("nodes") if isinstance(given, dict) else None
        if not isinstance(nodes, str) or ":" not in nodes:
            return given
        fewest, _, most = (text.strip() for text in nodes.partition(":"))
        if not (_is_count(fewest) and _is_count(most)) or int(fewest) > int(most):
            raise ValueError(
                f"nodes must be a number, or MIN:MAX for a run that grows and shrinks, got {nodes[:40]!r}"
            )
        if str(given.get("min_nodes") or fewest) != fewest:
            raise ValueError(f"min_nodes is named twice: nodes {nodes} says {fewest}")
        return given | {"nodes": int(most), "min_nodes": int(fewest), "elastic": True}

    @field_validator("env")
    @classmethod
    def _environment_is_settable(cls, env: dict[str, str]) -> dict[str, str]:
        for key in env:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
                raise ValueError(f"{key!r} is not a variable name: letters, digits and _ only")
            if key in RESERVED_VARIABLES or key.startswith("RANKZERO_"):
                raise ValueError(f"{key} is set by Rankzero and the node, not by a run")
            if key in RENDEZVOUS_VARIABLES:
                raise ValueError(f"{key} is set by the launcher, not by a run")
        return env

    @field_validator("links")
    @classmethod
    def _links_stay_inside(cls, links: dict[str, str]) -> dict[str, str]:
        for name, path in links.items():
            if name in {"", ".", ".."} or "/" in name or "\0" in name:
                raise ValueError(f"{name!r} must be a plain name inside the working directory")
            if not path.startswith("/"):
                raise ValueError(f"{path!r} must be an absolute path on the node")
        return links

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.entry and self.module:
            raise ValueError("entry and module exclude each other: name one of them")
        if self.strategy in ("dp", "single") and self.nodes > 1:
            raise ValueError(f"strategy {self.strategy} is one process on one node: nodes must be 1")
        if self.min_nodes is not None and self.min_nodes > self.nodes:
            raise ValueError(f"min_nodes must be at most nodes: {self.min_nodes} is more than {self.nodes}")
        if self.elastic and self.min_nodes is None:
            raise ValueError(
                "min_nodes must be named for an elastic run: write nodes as MIN:MAX, for example 2:4"
            )
        if self.torchrun_restarts and self.effective_launcher == "python":
            raise ValueError("torchrun_restarts needs a launcher: python starts the script without one")
        if self.on_nodes and len(set(self.on_nodes)) < self.nodes:
            raise ValueError(
                f"on_nodes names {len(set(self.on_nodes))} of the {self.nodes} nodes that the run needs: name more"
            )
        if self.pool == "slurm" and self.elastic:
            raise ValueError(
                "nodes must be one number with pool slurm: a job has the nodes it was submitted with"
            )
        if self.pool == "slurm" and self.on_nodes:
            raise ValueError("on_nodes is for our own nodes; of Slurm ask with the option --nodelist=NAMES")
        if self.strategy in ("dp", "single") and self.launcher in ("torchrun", "launch"):
            raise ValueError(f"strategy {self.strategy} is one process: the launcher must be python")
        return self

    @property
    def effective_launcher(self) -> Launcher:
        """torchrun, unless the spec says otherwise or the strategy is a single process."""
        return self.launcher or ("python" if self.strategy in ("dp", "single") else "torchrun")

    @property
    def node_range(self) -> str:
        """What a person writes for `nodes`: 4, or 2:4 for an elastic run."""
        return f"{self.min_nodes}:{self.nodes}" if self.elastic else str(self.nodes)

    @property
    def fewest_nodes(self) -> int:
        """Nodes that an attempt after a loss may make do with; of an elastic run also the first."""
        return self.min_nodes or self.nodes

    @property
    def processes_per_node(self) -> int:
        """Ranks started on each node: one for `single` and `dp`, else one per GPU."""
        return 1 if self.strategy in ("dp", "single") else (self.gpus_per_node or 1)

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.nodes * self.processes_per_node

    @property
    def scaled_lr(self) -> float | None:
        """The learning rate each rank trains with, or None when the script's own is used."""
        return None if self.lr is None else self.lr * lr_factor(self.lr_scaling, self.world_size)

    @property
    def global_batch_size(self) -> int | None:
        """Samples per optimizer step: batch per GPU x ranks x accumulation."""
        return None if self.batch_size is None else self.batch_size * self.world_size * self.accumulate


def rank_at(node_rank: int, devices: int, position: int, strategy: str | None) -> int:
    """The rank that computes on a device, by its position among those its node has for the run."""
    return node_rank if strategy in ("dp", "single") else node_rank * devices + position


def lr_factor(scaling: LrScaling, world_size: int) -> float:
    """The factor of the scaling rule: n (Goyal et al. 2017, arXiv:1706.02677), or sqrt(n)
    (Krizhevsky 2014, arXiv:1404.5997), for n ranks; accumulation never counts."""
    return {"none": 1.0, "linear": float(world_size), "sqrt": math.sqrt(world_size)}[scaling]


class ResumeFrom(BaseModel):
    """The checkpoint an attempt starts from, and where its node gets it."""

    model_config = ConfigDict(frozen=True)

    checkpoint_id: int
    name: str
    sha256: str
    size_bytes: int
    download_path: str
    """Path on the server, below its address."""


class Assignment(BaseModel):
    """One node's share of one attempt: what its worker is told to run, or to stop."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    attempt: int
    fence: int
    """Grows with every attempt of every run; a worker with an older number is answered 409."""
    node_rank: int
    action: Literal["run", "stop"]
    spec: RunSpec
    devices: list[str]
    device_kind: Literal["cuda", "cpu"]
    master_addr: str | None = None
    master_port: int | None = None
    grace_s: float | None = None
    """Seconds it has to save when it is to stop; None (from an older server): as the spec says."""
    may_start: bool = True
    """False while nodes have still to say what they train with: no rank starts before they agree."""
    is_known: bool = False
    """The node has spoken of it: whoever has nothing of it on the disk is not who began it."""
    stacks_requested_at: float | None = None
    """When somebody last asked where every rank stands."""
    resume_from: ResumeFrom | None = None
    uid: str = ""
    """Given to no other attempt, also by a store that was restored and gives fencing numbers a second time."""
    store: str = ""
    """The identity of the store that asks for it."""

    @property
    def label(self) -> str:
        """RUN/ATTEMPT/UID: names the attempt in every request about it."""
        return f"{self.run_id}/{self.attempt}/{self.uid}"

    def is_of(self, other: Assignment) -> bool:
        """Whether both are about one attempt; attempts from before there were uids are told apart by their fences."""
        same_uid = not (self.uid and other.uid) or self.uid == other.uid
        return same_uid and (self.run_id, self.attempt, self.fence) == (
            other.run_id,
            other.attempt,
            other.fence,
        )


class CheckPeer(BaseModel):
    """A node to find the way to."""

    model_config = ConfigDict(frozen=True)

    node_rank: int
    address: str
    port: int


class CheckPair(BaseModel):
    """An all-reduce to take part in, with one other node."""

    model_config = ConfigDict(frozen=True)

    rank: Literal[0, 1]
    address: str
    """Of rank 0."""
    port: int
    backend: Literal["gloo", "nccl"]


class CheckWish(BaseModel):
    """What one node is asked to find out in one stage of a preflight."""

    model_config = ConfigDict(frozen=True)

    check_id: int
    node_rank: int
    """Its place among the nodes that are checked."""
    stage: int
    """0: about itself; 1: the way to the others; each further one an all-reduce."""
    python: str | None = None
    """The interpreter to train with; None: the node's default."""
    devices: list[str] = []
    """To measure with; empty: any GPU of the node."""
    peers: list[CheckPeer] = []
    pair: CheckPair | None = None


class JobWish(BaseModel):
    """What a gateway is told of one attempt that a Slurm cluster gives its devices: submit its job, or end it."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    attempt: int
    fence: int
    action: Literal["run", "stop"]
    spec: RunSpec
    secret: str
    """With this its workers may join, for this attempt alone and until it has ended."""
    grace_s: float
    """How long a job that is to stop may take to end by itself."""

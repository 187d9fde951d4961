"""The specification of a run."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from domain.choices import Launcher, LrOnResize, LrScaling, OnHang, OnLostNode, PassedField, Pool, Precision, Strategy
from domain.environments.locks import checked_choice
from domain.environments.sources import source_of
from domain.people.references import Named, Reference
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest
from domain.series.printed_pattern import checked

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


def check_variable(name: str) -> None:
    """Raise ValueError for the name of a variable that no run may set."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"{name!r} is not a variable name: letters, digits and _ only")
    if name in RESERVED_VARIABLES or name.startswith("RANKZERO_"):
        raise ValueError(f"{name} is set by Rankzero and the node, not by a run")
    if name in RENDEZVOUS_VARIABLES:
        raise ValueError(f"{name} is set by the launcher, not by a run")


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _one_line(value: str) -> str:
    if any(ord(c) < 32 or ord(c) == 127 for c in value):
        raise ValueError("must not contain line breaks or control characters")
    return value.strip()


Argument = Annotated[str, AfterValidator(_plain_text)]
Label = Annotated[str, Field(max_length=200), AfterValidator(_plain_text), AfterValidator(_one_line)]
NodeText = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_plain_text), AfterValidator(_one_line)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
SLURM_OPTION = re.compile(r"--([a-z][a-z0-9-]*)(=.*)?")
SLURM_SETS = frozenset(
    "nodes ntasks ntasks-per-node job-name comment parsable wrap array wait test-only signal no-requeue requeue "
    "partition account time export dependency-file batch-script".split()
)
"""Options of sbatch that Rankzero sets from other fields, or that would change the kind of job."""


def _sbatch_option(value: str) -> str:
    option = SLURM_OPTION.fullmatch(_one_line(value))
    if option is None:
        raise ValueError(f"{value!r} must be a long option of sbatch as one word, like --constraint=a100")
    if option[1] in SLURM_SETS:
        raise ValueError(f"--{option[1]} is set by Rankzero for each job, not by a run")
    return value.strip()


def _time_limit(value: str) -> str:
    if not re.fullmatch(r"(\d{1,4}-)?\d{1,6}(:\d{1,2}){0,2}", value.strip()):
        raise ValueError("must be in sbatch's format: 90 (minutes), 12:00:00 or 2-12 (days-hours)")
    return value.strip()


Pattern = Annotated[Argument, AfterValidator(checked)]
"""A pattern of printed lines."""
TimeLimit = Annotated[Argument, AfterValidator(_time_limit)]
SbatchOption = Annotated[Argument, AfterValidator(_sbatch_option)]


class SlurmOptions(BaseModel):
    """Options of a Slurm job beside its nodes and devices. `None` means the cluster's default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    partition: NodeText | None = None
    account: NodeText | None = None
    time_limit: TimeLimit | None = None
    """A time in sbatch's format: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""
    options: Annotated[list[SbatchOption], Field(max_length=100)] = []
    """Further options of sbatch, e.g. `--constraint=a100`."""


class RunSpec(BaseModel):
    """Everything a person decides about a run. `None` means the script's or recipe's default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_plain_text), Reference(Named.CODE)]
    """A recipe's name, the absolute path of a script or folder, or a git URL; with `snapshot`, only its origin."""
    entry: Annotated[Argument, Reference(Named.CODE)] | None = None
    """The script to start, relative to the folder or the snapshot."""
    snapshot: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$"), Reference(Named.SNAPSHOT)] | None = None
    """SHA-256 of the code that is unpacked into the working directory of every node."""
    ref: Annotated[str, Field(max_length=250), AfterValidator(_plain_text), AfterValidator(_one_line)] | None = None
    """Branch, tag or commit of a git URL; the resolved commit is stored with the snapshot."""
    module: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*$"), Reference(Named.CODE)] | None = None
    name: Label = ""
    project: Annotated[Label, Reference(Named.PROJECT, Action.LAUNCH)] = "default"
    nodes: Annotated[int, Field(ge=1, le=4096)] = 1
    """Also accepts the string MIN:MAX, which makes the run elastic with `min_nodes` MIN."""
    gpus_per_node: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Processes per node; `None` is replaced at submission by the free slots of the emptiest node."""
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
    as_variables: dict[PassedField, Argument] = {}
    """Values that no option of the script takes: it has them only as RANKZERO_LR and the like, if it reads those."""
    env: dict[str, Argument] = {}
    secrets: Annotated[list[str], Field(max_length=100), Reference(Named.SECRET)] = []
    """Names of stored secrets of the person or the project, which the ranks get as variables of the same names."""
    python: Annotated[Argument, Reference(Named.NODE_PATH)] | None = None
    environment: Annotated[
        Argument, AfterValidator(_one_line), AfterValidator(checked_choice), Reference(Named.NODE_PATH)
    ] = "auto"
    """auto, lock, none, a lock file in the code, or the absolute path of an environment on the nodes."""
    workdir: Annotated[Argument, Reference(Named.NODE_PATH)] | None = None
    links: Annotated[dict[str, Argument], Reference(Named.NODE_PATH)] = {}
    stage: Annotated[dict[str, Argument], Field(max_length=100), Reference(Named.NODE_PATH)] = {}
    """Name in the working directory -> where each node brings it from, once, before the start."""
    resume: Annotated[str, Field(max_length=4200), Reference(Named.CHECKPOINT)] | None = None
    """RUN or RUN:CHECKPOINT."""
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    """Higher priorities start first; among equals, the oldest."""
    labels: Annotated[dict[NodeText, NodeText], Field(max_length=32)] = {}
    """Labels that every node of the run must have."""
    on_nodes: Annotated[list[NodeText], Field(max_length=4096)] = []
    """Names of the nodes it may get; empty: any."""
    wait_for_nodes: bool = False
    stop_grace_s: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 30.0
    probe: bool = True
    """Load the probe into every rank: steps, data waits, stacks."""
    printed_pattern: Pattern | None = None
    """How a line that the script prints is read as a series: `it {step} | loss {loss}`."""
    hang_after_s: Annotated[float, Field(ge=1, le=604_800, allow_inf_nan=False)] | None = None
    """Seconds without a step that count as a hang; None: 60, or ten median steps if that is longer."""
    on_hang: OnHang = "report"
    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 0
    """Automatic restarts from the last complete checkpoint after failures."""
    min_nodes: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Minimum nodes for a restart after a node is lost; None: as many as the first attempt."""
    elastic: bool = False
    """Start on `min_nodes` to `nodes` nodes, as available, and grow or shrink at checkpoints."""
    on_lost_node: OnLostNode = "wait"
    lr_on_resize: LrOnResize = "keep"
    torchrun_restarts: Annotated[int, Field(ge=0, le=1000)] = 0
    """torchrun's own --max-restarts: ranks restart within the attempt."""
    pool: Pool = "nodes"
    slurm: SlurmOptions = SlurmOptions()

    @model_validator(mode="before")
    @classmethod
    def _nodes_may_be_a_range(cls, fields: Any) -> Any:
        nodes = fields.get("nodes") if isinstance(fields, dict) else None
        if not isinstance(nodes, str) or ":" not in nodes:
            return fields
        fewest, _, most = (text.strip() for text in nodes.partition(":"))
        if not (_is_count(fewest) and _is_count(most)) or int(fewest) > int(most):
            raise ValueError(f"nodes must be a number, or MIN:MAX for a run that grows and shrinks, got {nodes[:40]!r}")
        if str(fields.get("min_nodes") or fewest) != fewest:
            raise ValueError(f"min_nodes is given twice: nodes {nodes} sets it to {fewest}")
        return fields | {"nodes": int(most), "min_nodes": int(fewest), "elastic": True}

    @field_validator("env", "secrets")
    @classmethod
    def _variables_are_settable(cls, names: Any) -> Any:
        for name in names:
            check_variable(name)
        return names

    @field_validator("stage")
    @classmethod
    def _sources_are_known(cls, stage: dict[str, str]) -> dict[str, str]:
        for name, source in stage.items():
            if name in {"", ".", ".."} or "/" in name or "\0" in name:
                raise ValueError(f"{name!r} must be a plain name inside the working directory")
            source_of(source)
        return stage

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
        if both := self.links.keys() & self.stage.keys():
            raise ValueError(f"stage and links both name {min(both)}: one of them must have another name")
        if both := self.env.keys() & set(self.secrets):
            raise ValueError(f"env and secrets both name {min(both)}: a variable is one or the other")
        if self.entry and self.module:
            raise ValueError("entry and module exclude each other: name one of them")
        if self.strategy in ("dp", "single") and self.nodes > 1:
            raise ValueError(f"strategy {self.strategy} is one process on one node: nodes must be 1")
        if self.min_nodes is not None and self.min_nodes > self.nodes:
            raise ValueError(f"min_nodes must be at most nodes: {self.min_nodes} is more than {self.nodes}")
        if self.elastic and self.min_nodes is None:
            raise ValueError("min_nodes must be set for an elastic run: write nodes as MIN:MAX, for example 2:4")
        if self.torchrun_restarts and self.effective_launcher == "python":
            raise ValueError("torchrun_restarts needs a launcher: python starts the script without one")
        if self.on_nodes and len(set(self.on_nodes)) < self.nodes:
            raise ValueError(
                f"on_nodes names {len(set(self.on_nodes))} of the {self.nodes} nodes that the run needs: name more"
            )
        if self.pool == "slurm" and self.elastic:
            raise ValueError("nodes must be one number with pool slurm: a job has the nodes it was submitted with")
        if self.pool == "slurm" and self.on_nodes:
            raise ValueError("on_nodes is for your own nodes; for Slurm use the option --nodelist=NAMES")
        if self.strategy in ("dp", "single") and self.launcher in ("torchrun", "launch"):
            raise ValueError(f"strategy {self.strategy} is one process: the launcher must be python")
        return self

    def hands_over(self, field: str) -> bool:
        """Whether the arguments have a placeholder for the field, such as `{lr}`."""
        return any(f"{{{field}}}" in argument for argument in self.args)

    @property
    def effective_launcher(self) -> Launcher:
        """The launcher of the spec; by default torchrun, or python where the strategy is a single process."""
        return self.launcher or ("python" if self.strategy in ("dp", "single") else "torchrun")

    @property
    def node_range(self) -> str:
        """The number of nodes as a person writes it: 4, or 2:4 for an elastic run."""
        return f"{self.min_nodes}:{self.nodes}" if self.elastic else str(self.nodes)

    @property
    def fewest_nodes(self) -> int:
        """Minimum nodes of an attempt after a node is lost, and of every attempt of an elastic run."""
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
        """The learning rate each rank trains with; None when the script sets it."""
        return None if self.lr is None else self.lr * lr_factor(self.lr_scaling, self.world_size)

    @property
    def global_batch_size(self) -> int | None:
        """Samples per optimizer step: batch per GPU x ranks x accumulation."""
        return None if self.batch_size is None else self.batch_size * self.world_size * self.accumulate


def rank_at(node_rank: int, devices: int, position: int, strategy: str | None) -> int:
    """The rank that computes on a device, from the device's position among the node's devices for the run."""
    return node_rank if strategy in ("dp", "single") else node_rank * devices + position


def lr_factor(scaling: LrScaling, world_size: float) -> float:
    """The factor of the scaling rule for n ranks: n (Goyal et al. 2017, arXiv:1706.02677), or sqrt(n)
    (Krizhevsky 2014, arXiv:1404.5997); accumulation does not count."""
    return {"none": 1.0, "linear": float(world_size), "sqrt": math.sqrt(world_size)}[scaling]


# Whether Linux can pass a run's arguments and variables to a program: limits on each, and on all together.

MOST_BYTES = 1024 * 1024
"""Arguments and variables together. Linux takes a quarter of the stack's limit, 2 MiB as a rule; the rest is for
what the node's own environment and the launcher add."""
POINTER_BYTES = 8
"""Linux counts one for each string."""


def check_size(spec: RunSpec) -> None:
    """Raise InvalidRequest when no program can be started with what the spec asks for.

    Not a rule of the spec itself: a store may hold runs from before there was one."""
    for name, value in spec.env.items():
        size_bytes = _bytes(f"{name}={value}")
        if size_bytes > MAX_ARGUMENT_BYTES:
            raise InvalidRequest(
                "env",
                f"env: {name} has {size_bytes:,} bytes with its name; Linux passes at most {MAX_ARGUMENT_BYTES:,} "
                "(128 KiB) to a program in one variable. Put the value into a file and name that.",
            )
    args_bytes = sum(_bytes(text) + POINTER_BYTES for text in spec.args)
    env_bytes = sum(_bytes(f"{name}={value}") + POINTER_BYTES for name, value in spec.env.items())
    if args_bytes + env_bytes > MOST_BYTES:
        field = "env" if env_bytes > args_bytes else "args"
        raise InvalidRequest(
            field,
            f"{field}: arguments ({args_bytes:,} bytes) and environment ({env_bytes:,} bytes) may have "
            f"{MOST_BYTES:,} bytes (1 MiB) together, so that Linux can pass them to a program. "
            "Put long values into a file and name that.",
        )


def _bytes(text: str) -> int:
    """The size Linux counts for a string: its bytes and the terminating NUL."""
    return len(text.encode(errors="surrogatepass")) + 1


# The labels of a spec's fields on the pages.

LABELS = {
    "target": "Code",
    "git_url": "Repository",
    "ref": "Branch, tag or commit",
    "snapshot": "Code",
    "entry": "Entry file",
    "module": "Module",
    "name": "Name",
    "project": "Project",
    "nodes": "Nodes",
    "gpus_per_node": "GPUs per node",
    "batch_size": "Batch per GPU",
    "lr": "Learning rate",
    "lr_scaling": "Scaling rule",
    "warmup_steps": "Warm-up steps",
    "epochs": "Epochs",
    "max_steps": "Steps",
    "precision": "Precision",
    "accumulate": "Accumulation",
    "strategy": "Strategy",
    "launcher": "Launcher",
    "seed": "Seed",
    "args": "Extra arguments",
    "as_variables": "Only as variables",
    "env": "Environment",
    "secrets": "Secrets",
    "python": "Python",
    "environment": "Packages",
    "workdir": "Working directory",
    "links": "Links",
    "stage": "Data",
    "priority": "Priority",
    "labels": "Node labels",
    "on_nodes": "Only on nodes",
    "resume": "Resume from",
    "stop_grace_s": "Stop grace period",
    "probe": "Watch the ranks",
    "printed_pattern": "Pattern of printed lines",
    "hang_after_s": "Hang timeout",
    "on_hang": "After a hang",
    "max_restarts": "Automatic restarts",
    "min_nodes": "Minimum nodes",
    "on_lost_node": "When a node is lost",
    "lr_on_resize": "Learning rate on fewer nodes",
    "torchrun_restarts": "torchrun's own restarts",
    "pool": "Devices from",
    "partition": "Partition",
    "account": "Account",
    "time_limit": "Time limit",
    "sbatch_options": "Further options of sbatch",
}

# What people may change about a run after its launch: how it is named, sorted and described.

MOST_TAGS = 50
"""Tags of one run."""
_NOT_IN_TAGS = frozenset('",|')


def check_tag(value: str) -> str:
    """Return a tag, which is one word of a search and of the command line. Raises ValueError."""
    has_space = any(c.isspace() or not c.isprintable() for c in value)
    if not 0 < len(value) <= 64 or has_space or _NOT_IN_TAGS & set(value) or value[0] in "+-":
        raise ValueError(f"a tag has 1 to 64 characters without spaces, quotes, commas and |, got {value[:64]!r}")
    return value


LONGEST_REASON = 300


def checked_reason(text: str | None) -> str | None:
    """Why a person stops a run, in one line; None without a reason. Raises InvalidRequest."""
    reason = " ".join((text or "").split())
    if len(reason) > LONGEST_REASON or not reason.isprintable():
        raise InvalidRequest("reason", f"reason must be one line of at most {LONGEST_REASON} characters.")
    return reason or None


def _check_text(value: str) -> str:
    if any((ord(c) < 32 and c not in "\n\t") or 0xD800 <= ord(c) < 0xE000 for c in value):
        raise ValueError("must not contain control characters")
    return value.strip()


def _check_pattern(value: str) -> str:
    return checked(value) if value.strip() else ""


Tag = Annotated[str, AfterValidator(check_tag)]
Tags = Annotated[list[Tag], Field(max_length=MOST_TAGS)]


class RunEdit(BaseModel):
    """A change to a run; `None` leaves a field as it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[Label, Field(min_length=1)] | None = None
    project: Annotated[Label, Field(min_length=1), Reference(Named.PROJECT, Action.ACT)] | None = None
    note: Annotated[str, Field(max_length=10_000), AfterValidator(_check_text)] | None = None
    """Plain text; empty removes it."""
    archived: bool | None = None
    """Archived runs are listed only by a search for `archived:yes`."""
    pinned: bool | None = None
    """Pinned runs come first."""
    baseline: bool | None = None
    """The baseline of its project, instead of another run."""
    printed_pattern: Annotated[Argument, AfterValidator(_check_pattern)] | None = None
    """How printed lines are read, in a live attempt too; empty leaves that to the rules."""
    add_tags: Tags = []
    remove_tags: Tags = []

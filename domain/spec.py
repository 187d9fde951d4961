"""The specification of a run."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from domain.catalogue import OTHER_CODE, OTHER_DATA, OTHER_LENGTH, InputKind, Row, Section, catalogue
from domain.choices import Launcher, LrOnResize, LrScaling, OnHang, OnLostNode, Pool, Precision, Strategy
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

    partition: Annotated[NodeText, Row("Partition", section=Section.SLURM, unset="the cluster's default")] | None = None
    account: Annotated[NodeText, Row("Account", section=Section.SLURM, unset="yours")] | None = None
    time_limit: Annotated[TimeLimit, Row(
        "Time limit", section=Section.SLURM, unset="the partition's", metavar="T",
        help="90 (minutes), 12:00:00 or 2-12 (days-hours). Shortly before, the ranks get a signal to save.",
    )] | None = None  # fmt: skip
    """A time in sbatch's format: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""
    options: Annotated[list[SbatchOption], Field(max_length=100), Row(
        "Further options of sbatch", section=Section.SLURM, name="sbatch_options", kind=InputKind.WORDS,
        option="sbatch-option", metavar="--X=Y", example="--constraint=a100 --mem=64G",
        help="Such as --constraint=a100, --mem=64G and --cpus-per-gpu=8.",
    )] = []  # fmt: skip


class RunSpec(BaseModel):
    """Everything a person decides about a run. `None` means the script's or recipe's default."""

    # Its rows are the catalogue of its fields, in the order in which the form and the command line have them.

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: Annotated[
        str, Field(min_length=1, max_length=4096), AfterValidator(_plain_text), Reference(Named.CODE),
        Row("Code", resumed=OTHER_CODE),
    ]  # fmt: skip
    """A recipe's name, the absolute path of a script or folder, or a git URL; with `snapshot`, only its origin."""
    entry: Annotated[Argument, Reference(Named.CODE), Row(
        "Entry file", section=Section.CODE, example="train.py", metavar="FILE",
        help="The file to start, relative to the folder or the repository.",
        resumed=OTHER_CODE,
    )] | None = None  # fmt: skip
    snapshot: Annotated[
        str,
        Field(pattern=r"^[0-9a-f]{64}$"),
        Reference(Named.SNAPSHOT),
        Row("Code", is_compared=False, is_searched=False),
    ] | None = None  # fmt: skip
    """SHA-256 of the code that is unpacked into the working directory of every node."""
    ref: Annotated[
        str,
        Field(max_length=250),
        AfterValidator(_plain_text),
        AfterValidator(_one_line),
        Row(
            "Branch, tag or commit", section=Section.CODE, unset="its default branch",
            help="Branch, tag or commit of a git address.",
            resumed=OTHER_CODE,
        ),
    ] | None = None  # fmt: skip
    """The resolved commit is stored with the snapshot."""
    module: Annotated[
        str,
        Field(pattern=r"^[A-Za-z_][\w.]*$"),
        Reference(Named.CODE),
        Row(
            "Module", section=Section.CODE, example="or package.train", help="Run with -m, instead of a file.",
            resumed=OTHER_CODE,
        ),
    ] | None = None  # fmt: skip
    name: Annotated[Label, Row("Name", section=Section.RUN, unset="the script's name", is_compared=False)] = ""
    project: Annotated[Label, Reference(Named.PROJECT, Action.LAUNCH), Row("Project", section=Section.RUN)] = "default"
    nodes: Annotated[int, Field(ge=1, le=4096), Row(
        "Nodes", section=Section.SCALE, metavar="N|MIN:MAX",
        help="2:4 starts with 2 to 4 available nodes, and grows and shrinks at checkpoints.",
    )] = 1  # fmt: skip
    """Also accepts the string MIN:MAX, which makes the run elastic with `min_nodes` MIN."""
    gpus_per_node: Annotated[int, Field(ge=1, le=1024), Row(
        "GPUs per node", label_without_gpus="Processes per node", section=Section.SCALE, unset="all free",
        help="Processes started on each node; by default all free slots (a slot is a GPU, or the place of one "
        "process on a node without) of the node with the most.",
    )] | None = None  # fmt: skip
    """Processes per node; `None` is replaced at submission by the free slots of the emptiest node."""
    strategy: Annotated[Strategy, Row(
        "Strategy", section=Section.SCALE,
        help="ddp: a replica on every rank. fsdp: parameters sharded over the ranks. "
        "dp: one process, all GPUs. single: one process, one GPU.",
        resumed="The parameters are sharded or named otherwise: the script must load the other form itself.",
    )] = "ddp"  # fmt: skip
    batch_size: Annotated[Count, Row(
        "Batch per GPU", label_without_gpus="Batch per process", section=Section.TRAINING,
        help="Samples per process and forward pass. Out of memory? Lower this and raise the accumulation.",
        several="Several make a sweep: 16, 32, 64.",
        script_options="per_device_train_batch_size per_gpu_train_batch_size per_device_batch_size "
        "per_gpu_batch_size batch_size_per_gpu batch_size_per_device local_batch_size micro_batch_size "
        "micro_batch train_micro_batch_size device_batch_size train_batch_size batch_size batchsize batch bs bsz",
        resumed="BatchNorm and memory see another batch in each process.",
    )] | None = None  # fmt: skip
    accumulate: Annotated[int, Field(ge=1, le=1_000_000), Row(
        "Accumulation", section=Section.TRAINING,
        help="Forward passes per optimizer step. Multiplies the global batch, costs no memory.",
        script_options="gradient_accumulation_steps grad_accumulation_steps accumulate_grad_batches "
        "grad_accum_steps accumulation_steps accum_steps accum_iter grad_accum accumulate",
    )] = 1  # fmt: skip
    precision: Annotated[Precision, Row(
        "Precision", section=Section.TRAINING, script_options="precision mixed_precision dtype amp_dtype",
        help="bf16 and fp16 are autocast; fp16 with a gradient scaler.",
        resumed="Values are rounded otherwise; fp16 alone has a gradient scaler, whose state the other has not.",
    )] = "fp32"  # fmt: skip
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False), Row(
        "Learning rate", section=Section.TRAINING, help="Rate for one process, before the scaling rule.",
        several="Several make a sweep: 1e-4, 3e-4 or 1e-5..1e-2 log.",
        script_options="learning_rate learningrate lr base_learning_rate init_lr initial_lr peak_lr max_lr",
    )] | None = None  # fmt: skip
    warmup_steps: Annotated[int, Field(ge=0, le=1_000_000_000), Row(
        "Warm-up steps", section=Section.TRAINING,
        help="Optimizer steps over which the rate rises from nearly 0.",
        script_options="num_warmup_steps warmup_steps n_warmup_steps lr_warmup_steps warmup_iters "
        "num_warmup_iters warmup_iterations",
        resumed=OTHER_LENGTH,
    )] | None = None  # fmt: skip
    lr_scaling: Annotated[LrScaling, Row(
        "Scaling rule", section=Section.TRAINING,
        help="linear: times the ranks (SGD, Goyal et al. 2017). sqrt: times their square root (Adam).",
    )] = "none"  # fmt: skip
    epochs: Annotated[Count, Row(
        "Epochs", section=Section.TRAINING, help="Passes over the data.",
        script_options="num_train_epochs num_epochs max_epochs n_epochs nepochs total_epochs train_epochs epochs",
        resumed=OTHER_LENGTH,
    )] | None = None  # fmt: skip
    max_steps: Annotated[Count, Row(
        "Steps", section=Section.TRAINING, unset="from epochs", help="Optimizer steps.",
        script_options="max_train_steps max_steps num_train_steps total_steps num_steps n_steps train_steps "
        "max_iters max_iter num_iters n_iters num_iterations max_iterations total_iters train_iters "
        "training_steps steps iters iterations",
        resumed=OTHER_LENGTH,
    )] | None = None  # fmt: skip
    seed: Annotated[int, Field(ge=0, lt=2**63), Row(
        "Seed", section=Section.TRAINING, unset="set by the script", help="Each rank derives its own seed.",
        several="Several (1, 2, 3) launch a run for each.",
        script_options="seed random_seed manual_seed rng_seed seed_everything",
        resumed="Shuffling and dropout follow another seed: within the epoch some samples come twice, others never.",
    )] | None = None  # fmt: skip
    launcher: Annotated[Launcher, Row(
        "Launcher", section=Section.RUN, unset="automatic",
        help="automatic: torchrun, or python for a single process.",
    )] | None = None  # fmt: skip
    args: Annotated[list[Argument], Field(max_length=10_000), Row(
        "Extra arguments", section=Section.RUN, kind=InputKind.WORDS, is_compared=False,
        example="--width 64 --data '/data/my images'",
        help="Added to the command. {lr}, {batch_size}, {epochs}, {max_steps}, {seed}, {run_dir} and {resume} "
        "are filled in; the environment has the same values as RANKZERO_LR and so on.",
        several="Several values in braces make a sweep: --width {64,128}.",
        resumed="The script gets another value.",
    )] = []  # fmt: skip
    as_variables: Annotated[
        dict[str, Argument],
        Field(json_schema_extra=lambda schema: schema.update(propertyNames={"enum": [*PASSED]})),
        Row("Only as variables"),
    ] = {}
    """Values that no option of the script takes: it has them only as RANKZERO_LR and the like, if it reads those."""
    env: Annotated[dict[str, Argument], Row(
        "Environment", section=Section.ADVANCED, example="NCCL_DEBUG=INFO", metavar="NAME=VALUE",
        help="Variables of the ranks.", entry_label="Environment",
        resumed="The ranks get another value of this variable.",
    )] = {}  # fmt: skip
    secrets: Annotated[list[str], Field(max_length=100), Reference(Named.SECRET), Row(
        "Secrets", section=Section.ADVANCED, kind=InputKind.SECRETS, option="secret", metavar="NAME",
        help="Each reaches the ranks as an environment variable of its name. Yours goes before the project's.",
    )] = []  # fmt: skip
    workdir: Annotated[Argument, Reference(Named.NODE_PATH), Row(
        "Working directory", section=Section.ADVANCED, unset="a fresh directory", metavar="PATH",
        help="A path: the run works in place, and its code is not stored.",
    )] | None = None  # fmt: skip
    resume: Annotated[str, Field(max_length=4200), Reference(Named.CHECKPOINT), Row(
        "Resume from", section=Section.ADVANCED, example="RUN or RUN:CHECKPOINT", metavar="RUN[:CHECKPOINT]",
        help="A checkpoint of another run; by default its latest complete one.",
    )] | None = None  # fmt: skip
    priority: Annotated[
        int,
        Field(ge=-100, le=100),
        Row("Priority", section=Section.ADVANCED, help="-100 to 100; higher priorities start first."),
    ] = 0  # fmt: skip
    on_nodes: Annotated[list[NodeText], Field(max_length=4096), Row(
        "Only on nodes", section=Section.ADVANCED, example="gpu-1, gpu-2", option="on", metavar="NODE",
        help="Only these nodes; by default any.",
    )] = []  # fmt: skip
    printed_pattern: Annotated[Pattern, Row(
        "Pattern of printed lines", section=Section.ADVANCED, example="it {step} | loss {loss}", metavar="PATTERN",
        help="For a script whose printed values no rule reads: one of its lines with names in braces for its "
        "numbers; {*} may be anything.",
        is_compared=False,
    )] | None = None  # fmt: skip
    links: Annotated[dict[str, Argument], Reference(Named.NODE_PATH), Row(
        "Links", section=Section.ADVANCED, example="data=/mnt/imagenet", option="link", metavar="NAME=PATH",
        help="A folder of the node that appears as NAME in the working directory.", entry_label="Link",
        resumed=OTHER_DATA,
    )] = {}  # fmt: skip
    stage: Annotated[dict[str, Argument], Field(max_length=100), Reference(Named.NODE_PATH), Row(
        "Data", section=Section.ADVANCED, example="data=https://host/imagenet.tar", metavar="NAME=SOURCE",
        help="What each node brings before the start, once: an http, https or s3 address, a path there, or "
        "HOST:PATH over the node's ssh; archives are unpacked. It is NAME in the working directory.",
        resumed=OTHER_DATA,
    )] = {}  # fmt: skip
    labels: Annotated[dict[NodeText, NodeText], Field(max_length=32), Row(
        "Node labels", section=Section.ADVANCED, example="rack=b2", option="label", metavar="NAME=VALUE",
        help="Only nodes with these labels, as `rankzero worker --label` gave them.",
    )] = {}  # fmt: skip
    python: Annotated[Argument, Reference(Named.NODE_PATH), Row(
        "Python", section=Section.ADVANCED, unset="the project's, else the node's",
        help="The Python to use, or a virtual environment's folder, on the nodes; by default the .venv or venv in "
        "the script's project where every node is on this machine, else each node's default.",
    )] | None = None  # fmt: skip
    environment: Annotated[
        Argument, AfterValidator(_one_line), AfterValidator(checked_choice), Reference(Named.NODE_PATH), Row(
        "Packages", section=Section.ADVANCED, example="auto, lock, none or a path", metavar="auto|lock|none|PATH",
        help="auto: each node builds the environment of the code's uv.lock, pylock.toml or requirements.txt. lock: "
        "require one. none: as the node is. Or the path of a lock file in the code, or of an environment there.",
    )] = "auto"  # fmt: skip
    wait_for_nodes: Annotated[
        bool,
        Row("Wait for nodes", section=Section.ADVANCED, help="Queue the run even if too few nodes have joined for it."),
    ] = False  # fmt: skip
    probe: Annotated[bool, Row(
        "Probe every rank", section=Section.ADVANCED,
        help="Records steps, data waits, memory and stack traces of every rank; detects hangs and silent mistakes. "
        "Costs less than 1 % of the step rate; the script needs no change.",
    )] = True  # fmt: skip
    max_restarts: Annotated[int, Field(ge=0, le=1000), Row(
        "Automatic restarts", section=Section.FAILURES,
        help="Automatic restarts from the last complete checkpoint after a failure.",
    )] = 0  # fmt: skip
    min_nodes: Annotated[int, Field(ge=1, le=4096), Row(
        "Minimum nodes", section=Section.FAILURES, unset="same as nodes",
        help="Minimum nodes for a restart after a node is lost; accumulation keeps the global batch.",
    )] | None = None  # fmt: skip
    """None: as many as the first attempt."""
    hang_after_s: Annotated[float, Field(ge=1, le=604_800, allow_inf_nan=False), Row(
        "Hang timeout", section=Section.FAILURES, unset="60 s or ten steps, whichever is longer", unit=" s",
        option="hang-after", metavar="S",
        help="Seconds without a step of any rank, apart from saving, validating and compiling.",
    )] | None = None  # fmt: skip
    stop_grace_s: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False), Row(
        "Stop grace period", section=Section.FAILURES, option="stop-grace", metavar="S", unit=" s",
        help="Seconds between SIGTERM and SIGKILL when the run is stopped.",
    )] = 30.0  # fmt: skip
    on_lost_node: Annotated[OnLostNode, Row(
        "When a node is lost", section=Section.FAILURES,
        help="wait: continue as long as the other ranks step. end: stop as soon as the node counts as lost.",
    )] = "wait"  # fmt: skip
    lr_on_resize: Annotated[LrOnResize, Row(
        "Learning rate on fewer nodes", section=Section.FAILURES,
        help="keep: unchanged, because the global batch is kept. scale: by the scaling rule for the number of "
        "ranks.",
    )] = "keep"  # fmt: skip
    on_hang: Annotated[OnHang, Row(
        "After a hang", section=Section.FAILURES,
        help="report: name the rank that is behind. end: stop the run. resume: stop it and resume from its "
        "latest checkpoint.",
    )] = "report"  # fmt: skip
    torchrun_restarts: Annotated[int, Field(ge=0, le=1000), Row(
        "torchrun's own restarts", section=Section.FAILURES,
        help="torchrun restarts its ranks within the attempt, unknown to Rankzero, which manages automatic "
        "restarts.",
    )] = 0  # fmt: skip
    elastic: Annotated[bool, Row("Grows and shrinks")] = False
    """Start on `min_nodes` to `nodes` nodes, as available, and grow or shrink at checkpoints."""
    pool: Annotated[Pool, Row(
        "Devices from", section=Section.SLURM,
        help="nodes: those on the Nodes page. slurm: a job on the cluster whose gateway has joined.",
    )] = "nodes"  # fmt: skip
    slurm: Annotated[SlurmOptions, Row("Slurm", entry_label="Slurm")] = SlurmOptions()

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

    @field_validator("as_variables")
    @classmethod
    def _are_passed(cls, values: dict[str, str]) -> dict[str, str]:
        if others := values.keys() - set(PASSED):
            raise ValueError(f"{min(others)} is not passed to scripts: name one of {', '.join(PASSED)}")
        return values

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


# The catalogue of all fields that a person sets, those of Slurm among them.

FIELDS = catalogue(RunSpec)
SLURM_FIELDS = catalogue(SlurmOptions)
CATALOGUE = {row.name: row for row in (*FIELDS.values(), *SLURM_FIELDS.values())}
PASSED = tuple(name for name, row in FIELDS.items() if row.script_options)
"""Fields that scripts take by options of their own."""


def label_of(field: str) -> str:
    """Return the label of a spec's field; another name as it is."""
    return CATALOGUE[field].label if field in CATALOGUE else field


def names_in(section: Section) -> list[str]:
    """Return the names of the fields in a section, in their order."""
    return [name for name, row in CATALOGUE.items() if row.section is section]


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

"""The command and environment a node starts for its share of a run. Pure: preview and launch share it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from domain.choices import RECIPES
from domain.spec import FIELDS, PASSED, RunSpec

_WORKER = Path(__file__).parents[2] / "worker"
PROBE_FOLDER = _WORKER / "probe"
"""First on each rank's PYTHONPATH: its sitecustomize starts the probe, then loads any other sitecustomize."""
COMPILE_CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
PLACEHOLDER = re.compile(rf"\{{({'|'.join(PASSED)}|run_dir|resume)\}}")
"""The name of a value in an argument, which is filled in: `{lr}`."""
RESUME_OPTIONS = (
    "resume_from_checkpoint resume_checkpoint resume_from resume_path resume_ckpt resume_file resume "
    "load_checkpoint restore_from ckpt_path"
).split()
"""Names of scripts' options that take the checkpoint to start from, the most specific names first."""
_GIVEN_WHOLE = re.compile(rf"(?P<option>[^\s{{}}=]+=)?{PLACEHOLDER.pattern}")
_BARE_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")


@dataclass(frozen=True)
class LaunchPlan:
    """A command, the variables set for it (not the full environment), and its working directory."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str


def local_rank_option(source: str) -> str | None:
    """`--local_rank` for a script written for torch 1, which knows no other spelling; else None."""
    underscored, dashed = (re.search(f"""["']--local{mark}rank["']""", source) for mark in "_-")
    return "--local_rank" if underscored and not dashed else None


@dataclass(frozen=True)
class TaskContext:
    """The context of one node's task; the defaults are placeholders for values unknown before it starts."""

    run_id: str = "<run>"
    attempt: int = 1
    node_rank: int = 0
    devices: tuple[str, ...] = ()
    device_kind: str = "cpu"
    master_addr: str | None = None
    master_port: int | None = None
    local_addr: str | None = None
    interface: str | None = None
    attempt_dir: str = "<run-dir>"
    python: str = "python"
    torchrun: str | None = "torchrun"
    """None where only `python -m torch.distributed.run` exists."""
    resume_path: str | None = None
    cpu_threads: int | None = None
    compile_cache: str | None = "<compile-cache>"
    """The folder in which compiled code is kept for later attempts; None where the environment names one."""
    local_rank_option: str | None = None
    """The option that passes the local rank to a script for `launch` written for torch 1."""
    packages: str | None = None
    """The folder of the packages that an environment has from the run's code."""

    @property
    def work_dir(self) -> str:
        """The default working directory of a run; files that appear in it are mirrored."""
        return f"{self.attempt_dir}/work"


def program_name(spec: RunSpec) -> str:
    """The name of a spec: its own, else its module, recipe or script without the suffix."""
    return spec.name or spec.module or (spec.entry or spec.target).rpartition("/")[2].removesuffix(".py")


def resume_placeholder(spec: RunSpec) -> str | None:
    """The path of the checkpoint to start from, as far as it is known before the launch; None without one."""
    name = (spec.resume or "").partition(":")[2].rpartition("/")[2]
    return f"<run-dir>/resume/{name or '<latest>'}" if spec.resume else None


def recipe_path(name: str) -> Path:
    """The path of a recipe's script on this machine."""
    return _WORKER / "recipes" / f"{name}.py"


def plan(spec: RunSpec, context: TaskContext) -> LaunchPlan:
    """The command of one node."""
    filled = _filled_in(spec, context)
    command = [*_launcher(spec, context), *_program(spec, context)]
    if spec.effective_launcher == "launch" and context.local_rank_option:
        command.append(f"{context.local_rank_option}=${{local_rank}}")  # torch fills it in for each rank
    if spec.target in RECIPES:
        command += _recipe_flags(spec, context)
    command += _arguments(spec.args, filled)
    return LaunchPlan(tuple(command), _environment(spec, context, filled), spec.workdir or context.work_dir)


def short_float(value: float) -> str:
    """0.0008, not 0.0008000000000000001: twelve digits suffice for a learning rate."""
    return f"{value:.12g}"


def _launcher(spec: RunSpec, context: TaskContext) -> list[str]:
    kind = spec.effective_launcher
    if kind == "python":
        return [context.python, "-u"]
    if kind == "launch":
        start = [context.python, "-m", "torch.distributed.launch"]
        start += ["--use-env"] if context.local_rank_option else []
    elif context.torchrun is None:
        start = [context.python, "-m", "torch.distributed.run"]
    else:
        start = [context.torchrun]
    return [
        *start,
        *_rendezvous(spec, context),
        f"--nproc-per-node={spec.processes_per_node}",
        *([f"--max-restarts={spec.torchrun_restarts}"] if spec.torchrun_restarts else []),
        f"--log-dir={context.attempt_dir}/logs/torchrun",
        "--redirects=3",
    ]


def _rendezvous(spec: RunSpec, context: TaskContext) -> list[str]:
    if spec.nodes == 1:
        return ["--standalone"]
    # Static, because c10d ranks nodes by their address and moves rank 0 and its port.
    options = [
        f"--nnodes={spec.nodes}",
        f"--node-rank={context.node_rank}",
        f"--master-addr={context.master_addr or '<node0-address>'}",
        f"--master-port={context.master_port or '<port>'}",
        f"--rdzv-id={context.run_id}-{context.attempt}",  # a node of another attempt on this port is rejected
    ]
    return options + ([f"--local-addr={context.local_addr}"] if context.local_addr else [])


def _program(spec: RunSpec, context: TaskContext) -> list[str]:
    if spec.target in RECIPES:
        return [str(recipe_path(spec.target))]
    if spec.module:
        return ["-m", spec.module]
    if spec.entry:  # the code is copied into the working directory, unless the run works in place
        return [str(PurePosixPath(spec.target if spec.workdir else context.work_dir) / spec.entry)]
    return [spec.target]


def _recipe_flags(spec: RunSpec, context: TaskContext) -> list[str]:
    """Flags of the fields that were set; the recipe has defaults for the others."""
    chosen = [name for name in (*PASSED, "strategy") if getattr(spec, name) != FIELDS[name].default]
    values = {name: _text(spec, name) for name in chosen} | {"resume": context.resume_path}
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items() if value is not None]


def _filled_in(spec: RunSpec, context: TaskContext) -> dict[str, str]:
    """The values for placeholders in arguments; those that are set also go into the environment."""
    return {name: _text(spec, name) for name in PASSED} | {
        "run_dir": context.work_dir,
        "resume": context.resume_path or "",
    }


WIDE = "240"
"""Columns of the terminal that a script believes to print to."""


def _environment(spec: RunSpec, context: TaskContext, filled: dict[str, str]) -> dict[str, str]:
    env = {
        "RANKZERO_RUN_ID": context.run_id,
        "RANKZERO_ATTEMPT": str(context.attempt),
        "RANKZERO_NODE_RANK": str(context.node_rank),
    }
    env |= {f"RANKZERO_{name.upper()}": value for name, value in (filled | spec.as_variables).items() if value}
    env["RANKZERO_STRATEGY"] = spec.strategy
    env["PYTHONUNBUFFERED"] = "1"
    env["COLUMNS"] = WIDE  # a log has no edge at which rich would wrap or cut what it prints
    env["OMP_NUM_THREADS"] = str(context.cpu_threads or 1)
    if context.device_kind == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = ""
        env["ACCELERATE_USE_CPU"] = "true"  # else each rank of Accelerate or HF Trainer trains alone
    elif context.devices:
        env |= visible_devices(context.devices)
    if spec.effective_launcher != "python":
        env["TORCHELASTIC_ERROR_FILE"] = f"{context.attempt_dir}/error.json"
        env["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(max(1, round(spec.stop_grace_s)))
        if spec.torchrun_restarts:  # with gloo, ranks that start again cannot meet in the agent's own store
            env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    if context.compile_cache:
        folders = (context.compile_cache, f"{context.compile_cache}/triton")
        env |= dict(zip(COMPILE_CACHE_VARIABLES, folders, strict=True))
    if context.interface:
        env["GLOO_SOCKET_IFNAME"] = env["NCCL_SOCKET_IFNAME"] = context.interface
    code = [spec.target] if spec.module and spec.workdir else []
    code += [context.packages] if context.packages else []
    if spec.probe:
        env["RANKZERO_PROBE_DIR"] = f"{context.attempt_dir}/probe"
        code.insert(0, str(PROBE_FOLDER))
    if code:
        env["PYTHONPATH"] = ":".join(code)
    return env | spec.env


def filled_args(spec: RunSpec) -> list[str]:
    """The script's own arguments with the spec's values in their placeholders; paths of a task stay placeholders."""
    paths = {name: f"{{{name}}}" for name in ("run_dir", "resume")}
    return _arguments(spec.args, _filled_in(spec, TaskContext()) | paths)


def _arguments(args: Sequence[str], filled: dict[str, str]) -> list[str]:
    """The arguments with placeholders filled in. An option whose value is not set (`--lr={lr}`, `--lr {lr}`) is left
    out, so that the script's default applies."""
    filled_args: list[str] = []
    for before, argument in zip(["", *args], args, strict=False):
        whole = _GIVEN_WHOLE.fullmatch(argument)
        if whole and not _substitute(f"{{{whole[2]}}}", filled):
            if whole["option"]:
                continue
            if _BARE_OPTION.fullmatch(before):
                filled_args.pop()
                continue
        filled_args.append(_substitute(argument, filled))
    return filled_args


def _substitute(argument: str, filled: dict[str, str]) -> str:
    return PLACEHOLDER.sub(lambda match: filled[match[1]], argument)


def _text(spec: RunSpec, name: str) -> str:
    """Return a value as scripts take it, a learning rate after scaling; empty where the script sets it."""
    value = spec.scaled_lr if name == "lr" else getattr(spec, name)
    return "" if value is None else short_float(value) if isinstance(value, float) else str(value)


# Read what a script's own arguments say: its number of steps or epochs, its batch size.

TOTAL_STEPS = frozenset(
    "steps max_steps num_steps n_steps total_steps train_steps max_train_steps num_train_steps training_steps iters "
    "max_iters max_iter num_iters n_iters total_iters train_iters iterations max_iterations num_iterations".split()
)
TOTAL_EPOCHS = frozenset(
    "epochs num_epochs n_epochs nepochs nb_epochs max_epochs max_epoch total_epochs train_epochs "
    "num_train_epochs".split()
)
BATCH_SIZE = frozenset(
    "batch_size batchsize per_device_train_batch_size per_gpu_batch_size train_batch_size micro_batch_size bs".split()
)


def total_steps(args: Sequence[str]) -> int | None:
    """Return the number of steps that `--steps 400`, `--max-iters=400` or `trainer.max_steps=400` asks for."""
    return _count(args, TOTAL_STEPS)


def total_epochs(args: Sequence[str]) -> int | None:
    """Return the number of epochs that `--epochs 8` or `trainer.max_epochs=8` asks for."""
    return _count(args, TOTAL_EPOCHS)


def option_names(args: Sequence[str]) -> set[str]:
    """Return the names of the options that are given, without dashes and groups."""
    return {name for name, _ in _options(args)}


def batch_size(args: Sequence[str]) -> int | None:
    """Return the batch size that the arguments give, taken as that of one process."""
    return _count(args, BATCH_SIZE)


def _count(args: Sequence[str], names: Collection[str]) -> int | None:
    """Return the last integer above 0 that one of the options has: the last one wins in a script."""
    values = [value for name, text in _options(args) if name in names and (value := _whole(text))]
    return values[-1] if values else None


def _options(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each option, the name without dashes and groups."""
    for arg, following in zip(args, [*args[1:], ""], strict=False):
        option, equals, value = arg.partition("=")
        if equals or option.startswith("-"):
            name = option.lstrip("-").rpartition(".")[2].replace("-", "_").lower()
            yield name, value if equals else following


def _whole(text: str) -> int | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if 1 <= value <= 1e15 and value.is_integer() else None


# Commands as a person would type them in a shell.


def shell_line(argv: Sequence[str]) -> str:
    """The command quoted for a shell; placeholders such as <port> stay readable."""
    return " ".join(argument if _is_placeholder(argument) else shlex.quote(argument) for argument in argv)


def _is_placeholder(argument: str) -> bool:
    bare = argument.replace("<", "").replace(">", "")
    return bare != argument and shlex.quote(bare) == bare


_AMD_ID = re.compile(r"GPU-[0-9a-f]{16}")


def visible_devices(devices: Sequence[str]) -> dict[str, str]:
    """The variable that shows a program these GPUs alone; AMD's have ids of sixteen digits."""
    name = "ROCR_VISIBLE_DEVICES" if devices and all(map(_AMD_ID.fullmatch, devices)) else "CUDA_VISIBLE_DEVICES"
    return {name: ",".join(devices)}

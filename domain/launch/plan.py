"""Pure: what a node starts for its share of a run. The dashboard previews with this very function."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from domain.spec import RunSpec

RECIPES = ("image_classifier", "language_model")
_WORKER = Path(__file__).parents[2] / "worker"
PROBE_FOLDER = _WORKER / "probe"
"""First on each rank's path: its sitecustomize watches the rank, and makes way for any other."""
_PLACEHOLDER = re.compile(r"\{(batch_size|lr|epochs|max_steps|precision|accumulate|seed|run_dir|resume)\}")
_GIVEN_WHOLE = re.compile(rf"(?P<option>[^\s{{}}=]+=)?{_PLACEHOLDER.pattern}")
_BARE_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")


@dataclass(frozen=True)
class LaunchPlan:
    """A command, the variables set for it (not the whole environment), and where it runs."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str


@dataclass(frozen=True)
class TaskContext:
    """Where one node's share runs; the defaults stand for what is not known before it starts."""

    run_id: str = "<run>"
    attempt: int = 1
    node_rank: int = 0
    devices: tuple[str, ...] = ()
    device_kind: str = "cpu"
    master_addr: str = "<node0-address>"
    master_port: str = "<port>"
    local_addr: str | None = None
    interface: str | None = None
    attempt_dir: str = "<run-dir>"
    python: str = "python"
    torchrun: str | None = "torchrun"
    resume_path: str | None = None
    cpu_threads: int | None = None
    local_rank_option: str | None = None

    @property
    def work_dir(self) -> str:
        """Where a run writes unless told otherwise; what appears here is mirrored."""
        return f"{self.attempt_dir}/work"


def recipe_names() -> tuple[str, ...]:
    """The training loops that ship."""
    return RECIPES


def recipe_path(name: str) -> Path:
    """The script of a recipe, on this machine."""
    return _WORKER / "recipes" / f"{name}.py"


def plan(
    spec: RunSpec,
    *,
    run_id: str = "<run>",
    attempt: int = 1,
    node_rank: int = 0,
    devices: Sequence[str] = (),
    device_kind: str = "cpu",
    master_addr: str | None = "<node0-address>",
    master_port: str | int | None = "<port>",
    local_addr: str | None = None,
    interface: str | None = None,
    attempt_dir: str | Path = "<run-dir>",
    python: str = "python",
    torchrun: str | None = "torchrun",
    resume_path: str | None = None,
    cpu_threads: int | None = None,
    local_rank_option: str | None = None,
) -> LaunchPlan:
    """The command of one node. `torchrun` is None where only `python -m torch.distributed.run` exists.

    `local_rank_option`: how a script for `launch` wants to be told its rank, where not as torch 2 does.
    """
    place = TaskContext(
        run_id, attempt, node_rank, tuple(devices), device_kind,
        "<node0-address>" if master_addr is None else master_addr,
        "<port>" if master_port is None else str(master_port),
        local_addr, interface, str(attempt_dir), python, torchrun, resume_path, cpu_threads, local_rank_option,
    )  # fmt: skip
    filled = _filled_in(spec, place)
    command = [*_launcher(spec, place), *_program(spec, place)]
    if spec.effective_launcher == "launch" and local_rank_option:
        command.append(f"{local_rank_option}=${{local_rank}}")  # torch fills it in for each rank
    if spec.target in RECIPES:
        command += _recipe_flags(spec, place)
    command += _arguments(spec.args, filled)
    return LaunchPlan(tuple(command), _environment(spec, place, filled), spec.workdir or place.work_dir)


def local_rank_option(source: str) -> str | None:
    """`--local_rank` for a script that was written for torch 1 and knows no other name of it."""
    underscored, dashed = (re.search(f"""["']--local{mark}rank["']""", source) for mark in "_-")
    return "--local_rank" if underscored and not dashed else None


def short_float(value: float) -> str:
    """0.0008, not 0.0008000000000000001: twelve digits say all that a learning rate means."""
    return f"{value:.12g}"


def _launcher(spec: RunSpec, place: TaskContext) -> list[str]:
    kind = spec.effective_launcher
    if kind == "python":
        return [place.python, "-u"]
    if kind == "launch":
        start = [place.python, "-m", "torch.distributed.launch"]
        start += ["--use-env"] if place.local_rank_option else []
    elif place.torchrun is None:
        start = [place.python, "-m", "torch.distributed.run"]
    else:
        start = [place.torchrun]
    return [
        *start,
        *_rendezvous(spec, place),
        f"--nproc-per-node={spec.processes_per_node}",
        *([f"--max-restarts={spec.torchrun_restarts}"] if spec.torchrun_restarts else []),
        f"--log-dir={place.attempt_dir}/logs/torchrun",
        "--redirects=3",
    ]


def _rendezvous(spec: RunSpec, place: TaskContext) -> list[str]:
    if spec.nodes == 1:
        return ["--standalone"]
    # Static, because c10d ranks nodes by their address and moves rank 0 and its port.
    options = [
        f"--nnodes={spec.nodes}",
        f"--node-rank={place.node_rank}",
        f"--master-addr={place.master_addr}",
        f"--master-port={place.master_port}",
        f"--rdzv-id={place.run_id}-{place.attempt}",  # who comes to a wrong port disturbs nobody there
    ]
    return options + ([f"--local-addr={place.local_addr}"] if place.local_addr else [])


def _program(spec: RunSpec, place: TaskContext) -> list[str]:
    if spec.target in RECIPES:
        return [str(recipe_path(spec.target))]
    if spec.module:
        return ["-m", spec.module]
    if spec.entry:  # the code is copied into the working directory, unless the run works in place
        return [str(PurePosixPath(spec.target if spec.workdir else place.work_dir) / spec.entry)]
    return [spec.target]


def _recipe_flags(spec: RunSpec, place: TaskContext) -> list[str]:
    """Only what was chosen: the rest is as the recipe has it."""
    chosen: list[tuple[str, object]] = [
        ("--epochs", spec.epochs),
        ("--max-steps", spec.max_steps),
        ("--batch-size", spec.batch_size),
        ("--lr", None if spec.scaled_lr is None else short_float(spec.scaled_lr)),
        ("--warmup-steps", spec.warmup_steps),
        ("--precision", spec.precision if spec.precision != "fp32" else None),
        ("--accumulate", spec.accumulate if spec.accumulate != 1 else None),
        ("--strategy", spec.strategy if spec.strategy != "ddp" else None),
        ("--seed", spec.seed),
        ("--resume", place.resume_path),
    ]
    return [f"{flag}={value}" for flag, value in chosen if value is not None]


def _filled_in(spec: RunSpec, place: TaskContext) -> dict[str, str]:
    """The values arguments may name in braces; the environment carries those that are set."""
    return {
        "batch_size": _text(spec.batch_size),
        "lr": "" if spec.scaled_lr is None else short_float(spec.scaled_lr),
        "epochs": _text(spec.epochs),
        "max_steps": _text(spec.max_steps),
        "precision": spec.precision,
        "accumulate": str(spec.accumulate),
        "seed": _text(spec.seed),
        "run_dir": place.work_dir,
        "resume": place.resume_path or "",
    }


def _environment(spec: RunSpec, place: TaskContext, filled: dict[str, str]) -> dict[str, str]:
    env = {"RANKZERO_RUN_ID": place.run_id, "RANKZERO_ATTEMPT": str(place.attempt)}
    env |= {f"RANKZERO_{name.upper()}": value for name, value in filled.items() if value}
    env["RANKZERO_STRATEGY"] = spec.strategy
    if spec.warmup_steps is not None:
        env["RANKZERO_WARMUP_STEPS"] = str(spec.warmup_steps)
    env["PYTHONUNBUFFERED"] = "1"
    env["OMP_NUM_THREADS"] = str(place.cpu_threads or 1)
    if place.device_kind == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = ""
        env["ACCELERATE_USE_CPU"] = "true"  # else each rank of Accelerate or HF Trainer trains alone
    elif place.devices:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(place.devices)
    if spec.effective_launcher != "python":
        env["TORCHELASTIC_ERROR_FILE"] = f"{place.attempt_dir}/error.json"
        env["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(max(1, round(spec.stop_grace_s)))
        if spec.torchrun_restarts:  # with gloo, ranks that start again cannot meet in the agent's own store
            env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    if place.interface:
        env["GLOO_SOCKET_IFNAME"] = env["NCCL_SOCKET_IFNAME"] = place.interface
    code = [spec.target] if spec.module and spec.workdir else []
    if spec.probe:
        env["RANKZERO_PROBE_DIR"] = f"{place.attempt_dir}/probe"
        code.insert(0, str(PROBE_FOLDER))
    if code:
        env["PYTHONPATH"] = ":".join(code)
    return env | spec.env


def _arguments(given: Sequence[str], filled: dict[str, str]) -> list[str]:
    """Braces filled in. An option whose value is not set (`--lr={lr}`, `--lr {lr}`) is left out: the script's own
    counts, as if nobody had named it."""
    done: list[str] = []
    for before, argument in zip(["", *given], given, strict=False):
        whole = _GIVEN_WHOLE.fullmatch(argument)
        if whole and not _substitute(f"{{{whole[2]}}}", filled):
            if whole["option"]:
                continue
            if _BARE_OPTION.fullmatch(before):
                done.pop()
                continue
        done.append(_substitute(argument, filled))
    return done


def _substitute(argument: str, filled: dict[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: filled[match[1]], argument)


def _text(value: int | None) -> str:
    return "" if value is None else str(value)

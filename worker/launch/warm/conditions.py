"""The conditions under which a forked torchrun is the same as a started one; each obstacle is a sentence."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

PER_RUN = re.compile(
    r"RANKZERO_\w+|TORCHELASTIC_ERROR_FILE|TORCH_ELASTIC_SHUTDOWN_TIMEOUT|TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    r"|TORCHINDUCTOR_CACHE_DIR|TRITON_CACHE_DIR|CUDA_VISIBLE_DEVICES|ACCELERATE_USE_CPU|(GLOO|NCCL)_SOCKET_IFNAME"
    r"|(WANDB|MLFLOW|COMET|NEPTUNE|CLEARML|TRACKIO|AIM|HF)_\w+"
)
"""Variables that torch does not read when it is imported, if at all: they may differ from run to run."""
_OPTION = re.compile(
    r"--(standalone|(nnodes|node-rank|master-addr|master-port|rdzv-id|local-addr|nproc-per-node|max-restarts"
    r"|log-dir|redirects)=.*)"
)
_IMPORT_TIME = re.compile(
    rb"""["'](?:(?:OMP|MKL|KMP|GOMP|OPENBLAS|NUMEXPR|VECLIB|LD|PYTORCH|TORCH|TORCHINDUCTOR|TORCHDYNAMO|MALLOC)_\w+"""
    rb"""|NPY_\w+|CUDA_(?!VISIBLE_DEVICES|LAUNCH_BLOCKING)\w+)["']"""
)
"""A variable, named in a script, that has to be set before torch is imported."""
MOST_FILES = 500
MOST_BYTES = 1_000_000


def torchrun_python(argv: Sequence[str]) -> str | None:
    """The interpreter of the torchrun that this command starts; None where it is not a script of its own."""
    with suppress(OSError, IndexError, ValueError):
        with Path(argv[0]).open("rb") as file:
            first = os.fsdecode(file.readline(4096)).strip()
        python = first.removeprefix("#!").strip()
        if Path(argv[0]).name == "torchrun" and first.startswith("#!") and Path(python).is_file():
            return python
    return None


def import_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that must be as they were when torch was imported: all but those of a single run."""
    return {name: value for name, value in env.items() if not PER_RUN.fullmatch(name)}


def limits() -> tuple[Any, ...]:
    """The inheritance of a process beside its environment: its priority, limits, cores, control groups and umask."""
    numbers = sorted(value for name, value in vars(resource).items() if name.startswith("RLIMIT_"))
    status = Path("/proc/self/status").read_text()
    return (
        os.getpriority(os.PRIO_PROCESS, 0),
        tuple(resource.getrlimit(number) for number in numbers),
        tuple(sorted(os.sched_getaffinity(0))),
        Path("/proc/self/cgroup").read_text(),
        re.findall(r"^Umask:.*$", status, re.MULTILINE),
    )


def command_obstacle(launch: Mapping[str, Any]) -> str:
    """Why this command cannot be forked, whatever is prepared; else nothing."""
    argv = launch.get("argv") or [""]
    if launch.get("launcher") != "torchrun":
        return f"it is not started by torchrun but by {launch.get('launcher')}"
    if torchrun_python(argv) is None:
        return f"{argv[0]} is not the torchrun script of an interpreter"
    if "PYTHON_EXEC" in launch["env"]:
        return "PYTHON_EXEC names another interpreter for the ranks"
    if "RANKZERO_PROBE_DIR" not in launch["env"]:
        return "without the probe a forked rank may never end"
    program = program_of(argv)
    if not program or (program[0].startswith("-") and program[0] != "-m"):
        return f"torchrun's option {program[0] if program else ''} is not known here"
    return ""


def differing(prepared: Mapping[str, str], env: Mapping[str, str]) -> list[str]:
    """The variables that differ from what torch was imported with."""
    wanted = import_environment(env)
    return sorted(name for name in {*prepared, *wanted} if prepared.get(name) != wanted.get(name))


def code_obstacle(launch: Mapping[str, Any], modules: Iterable[str]) -> str:
    """Why this script, by its code, has to import torch by itself; else nothing. `modules`: those imported already."""
    program, cwd = program_of(launch["argv"]), Path(launch["cwd"])
    imported = set(modules)
    if program[0] == "-m":
        folder = cwd
        if program[1].partition(".")[0] in imported:
            return f"the module {program[1]} is imported already"
    else:
        folder = (cwd / program[0]).resolve().parent
        if not program[0].endswith(".py"):
            return f"{program[0]} is not a .py file"
    for path in _entries(folder):
        name = path.name.partition(".")[0]
        if name in imported and (path.suffix in (".py", ".so") or (path / "__init__.py").exists()):
            return f"{path.name} beside the script hides the module {name}, which is imported already"
    return next(filter(None, map(_import_time_variable, _sources(folder))), "")


def program_of(argv: Sequence[str]) -> Sequence[str]:
    """The script and its arguments, or -m, a module and its arguments, after torchrun's options."""
    options = 1
    while options < len(argv) and _OPTION.fullmatch(argv[options]):
        options += 1
    return argv[options:]


def _entries(folder: Path) -> list[Path]:
    with suppress(OSError):
        return list(folder.iterdir())
    return []


def _sources(folder: Path) -> list[Path]:
    """The Python files of the folder and the packages in it."""
    files: list[Path] = []
    folders = [folder]
    while folders and len(files) < MOST_FILES:
        for path in sorted(_entries(folders.pop(0))):
            if path.suffix == ".py":
                files.append(path)
            elif path.is_dir() and not path.is_symlink() and (path / "__init__.py").exists():
                folders.append(path)
    return files[:MOST_FILES]


def _import_time_variable(path: Path) -> str:
    """The variable this file names and torch reads when it is imported, as a sentence."""
    with suppress(OSError), path.open("rb") as file:
        if match := _IMPORT_TIME.search(file.read(MOST_BYTES)):
            return f"{path.name} names {match[0].decode()[1:-1]}, which has to be set before torch is imported"
    return ""

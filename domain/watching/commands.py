"""What a command line tells of the ranks that it starts: torchrun, accelerate, deepspeed, mpirun. Else nothing."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath


@dataclass(frozen=True)
class LauncherCommand:
    """A command that starts ranks, on this node and perhaps on others that run the same command."""

    nodes: int | None
    """How many nodes run it; None: not a fixed number."""
    node_rank: int | None
    ranks_here: int | None
    """None: as many as there are devices, or elsewhere too."""
    rendezvous: str | None
    """What the commands on all its nodes name; None where it runs on this node alone."""
    rendezvous_id: str = ""


def command_of(argv: Sequence[str], env: Mapping[str, str]) -> LauncherCommand | None:
    """Return what the launcher in a command line starts; None without a launcher that is known."""
    name, words = _launcher(argv)
    return LAUNCHERS[name](_options(words), env) if name else None


def shares_output(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether a launcher of torch starts several ranks, each with its RANK, which print to its own output."""
    name, _ = _launcher(argv)
    command = command_of(argv, env)
    return name in WITH_RANK and command is not None and command.ranks_here != 1


def _launcher(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Return the launcher in a command line, and the words behind it; an empty name without one that is known."""
    words = _words(argv)
    for index, argument in enumerate(words):
        if argument.endswith(".py"):  # what follows are the arguments of a script
            break
        is_module = argument == "-m"
        name = "".join(words[index + 1 : index + 2]) if is_module else PurePath(argument).name
        if name in LAUNCHERS:
            return name, words[index + 1 :]
        if is_module:
            break
    return "", []


def script_of(argv: Sequence[str]) -> str:
    """Return the name of the script or module in a command line, without its folder."""
    words = _words(argv)
    for argument, following in pairwise([*words, ""]):
        if argument.endswith(".py"):
            return PurePath(argument).name
        if argument in ("-m", "--module") and following not in LAUNCHERS:
            return following
    return PurePath(words[0]).name if words else ""


def whole_number(text: str | None) -> int | None:
    """Return a number that a variable or option has, or None where it has none."""
    return int(text) if text and text.isascii() and text.isdecimal() else None


def address_of(host: str | None, port: str | None, own_host: str) -> str:
    """Return an address by which nodes find each other; this node's name stands for its loopback."""
    name, own_port = host or "", port or ""
    if not port and ":" in name:
        name, _, own_port = name.rpartition(":")
    anywhere = ("", "localhost", "::1", "[::1]", "0.0.0.0")  # nosec B104: compared with, nothing listens there
    is_local = name in anywhere or name.startswith("127.")
    return f"{own_host if is_local else name}:{own_port}"


def _words(argv: Sequence[str]) -> list[str]:
    """Return the words of a command; those of a shell's `-c TEXT` one by one."""
    words: list[str] = []
    for previous, argument in zip(["", *argv], argv, strict=False):
        words += _split(argument) if previous in ("-c", "-lc", "-ec") else [argument]
    return words


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:  # quotes that do not end
        return text.split()


def _options(words: Sequence[str]) -> dict[str, str]:
    """Return a launcher's options, which end where its script begins; names with underscores."""
    options: dict[str, str] = {}
    for argument, following in pairwise([*words, ""]):
        if argument.endswith(".py") or argument in ("-m", "--module", "--"):
            break
        if argument.startswith("-"):
            name, equals, value = argument.lstrip("-").partition("=")
            options[name.replace("-", "_")] = value if equals else following
    return options


def _torchrun(options: Mapping[str, str], env: Mapping[str, str]) -> LauncherCommand:
    """torchrun reads each option from a variable too: `--nnodes` from PET_NNODES."""

    def option(name: str, default: str = "") -> str:
        return options.get(name) or env.get(f"PET_{name.upper()}") or default

    if "standalone" in options or env.get("PET_STANDALONE", "0") != "0":
        nodes: int | None = 1
    else:
        least, _, most = option("nnodes", "1").partition(":")
        nodes = whole_number(least) if most in ("", least) else None
    address = option("rdzv_endpoint") or f"{option('master_addr', '127.0.0.1')}:{option('master_port', '29500')}"
    return LauncherCommand(
        nodes=nodes,
        node_rank=whole_number(option("node_rank")),
        ranks_here=whole_number(option("nproc_per_node", "1")),
        rendezvous=None if nodes == 1 else address,
        rendezvous_id=option("rdzv_id"),
    )


def _accelerate(options: Mapping[str, str], env: Mapping[str, str]) -> LauncherCommand:
    nodes = whole_number(options.get("num_machines", "1"))
    ranks = whole_number(options.get("num_processes"))
    address = f"{options.get('main_process_ip', '')}:{options.get('main_process_port', '')}"
    return LauncherCommand(
        nodes=nodes,
        node_rank=whole_number(options.get("machine_rank")),
        ranks_here=ranks // nodes if ranks and nodes else None,
        rendezvous=None if nodes == 1 else address,
    )


def _deepspeed(options: Mapping[str, str], env: Mapping[str, str]) -> LauncherCommand:
    """Without `--no_ssh` one command starts the ranks of all nodes."""
    ranks = whole_number(options.get("num_gpus"))
    if "no_ssh" not in options:
        is_here = not options.keys() & {"hostfile", "H", "num_nodes", "include", "i"}
        return LauncherCommand(nodes=1, node_rank=None, ranks_here=ranks if is_here else None, rendezvous=None)
    return LauncherCommand(
        nodes=whole_number(options.get("num_nodes")),
        node_rank=whole_number(options.get("node_rank")),
        ranks_here=ranks,
        rendezvous=f"{options.get('master_addr', '')}:{options.get('master_port', '29500')}",
    )


def _mpirun(options: Mapping[str, str], env: Mapping[str, str]) -> LauncherCommand:
    is_here = not options.keys() & {"H", "host", "hosts", "hostfile", "machinefile", "f", "rankfile"}
    ranks = next((options[name] for name in ("np", "n", "num_proc") if name in options), None)
    return LauncherCommand(
        nodes=1, node_rank=None, ranks_here=whole_number(ranks) if is_here else None, rendezvous=None
    )


def _srun(options: Mapping[str, str], env: Mapping[str, str]) -> LauncherCommand:
    """Its tasks run on the nodes of its job."""
    return LauncherCommand(nodes=1, node_rank=None, ranks_here=None, rendezvous=None)


LAUNCHERS: dict[str, Callable[[Mapping[str, str], Mapping[str, str]], LauncherCommand]] = {
    "torchrun": _torchrun,
    "torch.distributed.run": _torchrun,
    "torch.distributed.launch": _torchrun,
    "accelerate": _accelerate,
    "accelerate-launch": _accelerate,
    "accelerate.commands.launch": _accelerate,
    "deepspeed": _deepspeed,
    "mpirun": _mpirun,
    "mpiexec": _mpirun,
    "horovodrun": _mpirun,
    "srun": _srun,
}
TORCHRUN = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch"})
WITH_RANK = TORCHRUN | {"accelerate", "accelerate-launch", "accelerate.commands.launch", "deepspeed"}
"""Launchers whose processes on this machine have RANK in their environment."""


def is_torchrun(argv: Sequence[str]) -> bool:
    """Whether the command is torchrun itself, which says on standard error why it failed."""
    return _launcher(argv)[0] in TORCHRUN

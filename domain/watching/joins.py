"""Which run a watched process belongs to, and as which of its processes: by what its scheduler tells it.

Schedulers tell it in variables, launchers in their options. One small rule for each scheduler, the most specific
first; docs/ANYWHERE.md lists the variables. Only the standard library is imported: the front asks before it starts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from domain.watching.commands import LauncherCommand, address_of, command_of, script_of, whole_number


@dataclass(frozen=True)
class Join:
    """A process and the run that it belongs to; most fields are those of `WatchRequest`."""

    key: str | None
    """What all processes of the run share; None: it is a run of its own."""
    is_lasting: bool
    """Whether the key names nothing else later: who comes with it after the end is the next attempt."""
    process: int | None
    processes: int | None
    ranks_here: int | None
    world_size: int | None
    rank: int | None
    """The rank whose output its output is; None where it starts several."""
    scheduler: str | None
    """What started it, for people."""
    restart: int
    """How often it was started before, as far as the scheduler tells."""


def joined_by(env: Mapping[str, str], argv: Sequence[str], key: str | None, host: str) -> Join:
    """Return how a command with this environment joins the other processes of its run."""
    command = command_of(argv, env)
    started = Started(env, argv, command, host)
    place = next(place for rule in RULES if (place := rule(started)))
    place = _as_torchrun_child(started, place)
    if key:
        place = replace(place, key=f"run {key}", is_lasting=True)
    elif place.key is None:
        place = replace(place, process=0, processes=1)
    return _with_ranks(started, place)


@dataclass(frozen=True)
class Started:
    """How a process was started."""

    env: Mapping[str, str]
    argv: Sequence[str]
    command: LauncherCommand | None
    host: str

    def number(self, *names: str) -> int | None:
        """Return the number in the first of these variables that has one."""
        return next((number for name in names if (number := whole_number(self.env.get(name))) is not None), None)

    def in_one_job(self, processes: int | None) -> str:
        """Tell the commands that one job starts after each other apart, but not the processes of one command."""
        if processes == 1:
            return hashlib.sha256("\0".join(self.argv).encode(errors="replace")).hexdigest()[:12]
        return script_of(self.argv)


@dataclass(frozen=True)
class ProcessPlace:
    """A process among those of its run, as a scheduler tells it."""

    key: str | None
    scheduler: str | None = None
    process: int | None = None
    processes: int | None = None
    is_lasting: bool = False
    restart: int = 0


def _mpi(started: Started) -> ProcessPlace | None:
    """`mpirun`, also within a job of Slurm: there it starts its own daemons as Slurm's tasks."""
    env = started.env
    if "OMPI_COMM_WORLD_RANK" in env:
        name, rank, size = "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"
    elif "PMI_RANK" in env and "SLURM_STEP_ID" not in env:
        name, rank, size = "MPI", "PMI_RANK", "PMI_SIZE"
    else:
        return None
    processes = started.number(size)
    job = env.get("PMIX_NAMESPACE") or env.get("OMPI_MCA_ess_base_jobid") or env.get("PMI_JOBID")
    if not job:  # Hydra gives its job no name
        job = address_of(env["MASTER_ADDR"], env.get("MASTER_PORT"), started.host) if "MASTER_ADDR" in env else ""
    return ProcessPlace(f"mpi {job or env.get('PWD', '')} {processes}", name, started.number(rank), processes)


def _slurm_step(started: Started) -> ProcessPlace | None:
    """A task of `srun`; a shell that `srun --pty` gives to a person is none."""
    env = started.env
    processes = started.number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS") or 1
    is_shell = processes == 1 and ("SLURM_PTY_PORT" in env or not started.argv)
    if "SLURM_JOB_ID" not in env or "SLURM_STEP_ID" not in env or is_shell:
        return None
    return ProcessPlace(
        f"{_slurm_job(started)}.{env['SLURM_STEP_ID']}",
        f"Slurm job {env['SLURM_JOB_ID']}",
        started.number("SLURM_PROCID"),
        processes,
        is_lasting=True,
        restart=started.number("SLURM_RESTART_COUNT") or 0,
    )


def _slurm_script(started: Started) -> ProcessPlace | None:
    """Place what a batch script starts itself; in the shell of an interactive job no command is the next attempt."""
    env = started.env
    if "SLURM_JOB_ID" not in env:
        return None
    name = f"Slurm job {env['SLURM_JOB_ID']}"
    if started.command and started.command.rendezvous:
        return _rendezvous(started, name)
    if env.get("ENVIRONMENT") != "BATCH" or "SLURM_STEP_ID" in env or not started.argv:
        return ProcessPlace(None, name)
    key = f"{_slurm_job(started)} {started.in_one_job(1)}"
    return ProcessPlace(key, name, 0, 1, is_lasting=True, restart=started.number("SLURM_RESTART_COUNT") or 0)


def _slurm_job(started: Started) -> str:
    return f"slurm {started.env.get('SLURM_CLUSTER_NAME', '')} {started.env['SLURM_JOB_ID']}"


def _pytorch_job(started: Started) -> ProcessPlace | None:
    """The training operator names a job's pods JOB-master-0, JOB-worker-0, …; RANK counts them, not their ranks."""
    env = started.env
    pod = re.fullmatch(r"(.+)-(master|worker)-(\d+)", env.get("HOSTNAME", ""))
    if not pod or not _is_kubernetes(env) or "JOB_COMPLETION_INDEX" in env:
        return None
    if not env.keys() & {"MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT"}:
        return None
    process = started.number("PET_NODE_RANK", "RANK")
    processes = started.number("PET_NNODES")
    if "PET_NNODES" not in env:  # operators before 1.7 know one rank for each pod
        processes = started.number("WORLD_SIZE")
    process = int(pod[3]) if process is None else process
    return ProcessPlace(f"kubernetes {_namespace(env)}{pod[1]}", f"PyTorchJob {pod[1]}", process, processes)


def _indexed_job(started: Started) -> ProcessPlace | None:
    """An Indexed Job, also that of a JobSet or a TrainJob: HOSTNAME is the job's name and the pod's index.

    Pods that name no address to meet at do not train together: each is a run of its own."""
    env = started.env
    index = started.number("JOB_COMPLETION_INDEX")
    if index is None:
        return None
    job = env.get("HOSTNAME", started.host).removesuffix(f"-{index}")
    name = f"Kubernetes job {job}"
    if not _meets(started):
        return ProcessPlace(None, name, index)
    processes = started.command.nodes if started.command else started.number("PET_NNODES", "WORLD_SIZE")
    return ProcessPlace(f"kubernetes {_namespace(env)}{job}", name, index, processes)


def _kubernetes_pod(started: Started) -> ProcessPlace | None:
    """A pod of something else: its processes meet as they would without Kubernetes."""
    if not _is_kubernetes(started.env):
        return None
    name = f"Kubernetes pod {started.env.get('HOSTNAME', started.host)}"
    return replace(_rendezvous(started, name) or _by_address(started) or ProcessPlace(None), scheduler=name)


def _is_kubernetes(env: Mapping[str, str]) -> bool:
    return "KUBERNETES_SERVICE_HOST" in env


def _namespace(env: Mapping[str, str]) -> str:
    namespace = env.get("POD_NAMESPACE")  # only where the manifest passes it on
    return f"{namespace}/" if namespace else ""


def _meets(started: Started) -> bool:
    if started.command:
        return started.command.rendezvous is not None
    return bool(started.env.keys() & {"MASTER_ADDR", "PET_MASTER_ADDR"})


def _skypilot(started: Started) -> ProcessPlace | None:
    """Its task's id stays the same when a managed job recovers."""
    env = started.env
    if "SKYPILOT_TASK_ID" not in env:
        return None
    addresses = env.get("SKYPILOT_NODE_IPS", "").split()
    processes = started.number("SKYPILOT_NUM_NODES") or len(addresses) or 1
    task, process = env["SKYPILOT_TASK_ID"], started.number("SKYPILOT_NODE_RANK")
    key = f"skypilot {task} {started.in_one_job(processes)}"
    return ProcessPlace(key, f"SkyPilot task {task}", process, processes, is_lasting=True)


def _dstack(started: Started) -> ProcessPlace | None:
    """Its run's id is unique; the name is that of all runs of one configuration."""
    env = started.env
    if "DSTACK_RUN_NAME" not in env:
        return None
    processes = started.number("DSTACK_NODES_NUM") or 1
    name, process = env["DSTACK_RUN_NAME"], started.number("DSTACK_NODE_RANK")
    run = env.get("DSTACK_RUN_ID")
    key = f"dstack {run or name} {started.in_one_job(processes)}"
    return ProcessPlace(key, f"dstack run {name}", process, processes, is_lasting=run is not None)


def _launcher(started: Started) -> ProcessPlace | None:
    """torchrun, accelerate or deepspeed on each node, by hand."""
    return _rendezvous(started, None)


def _rendezvous(started: Started, scheduler: str | None) -> ProcessPlace | None:
    command = started.command
    if not command or not command.rendezvous:
        return None
    address = address_of(command.rendezvous, None, started.host)
    key = f"rendezvous {address} {command.rendezvous_id}".strip()
    return ProcessPlace(key, scheduler, command.node_rank, command.nodes)


def _by_address(started: Started) -> ProcessPlace | None:
    """Processes that were started one by one with the variables of `init_method="env://"`."""
    env, size = started.env, started.number("WORLD_SIZE")
    if started.command or "MASTER_ADDR" not in env or not size or size == 1 or "TORCHELASTIC_RUN_ID" in env:
        return None
    address = address_of(env["MASTER_ADDR"], env.get("MASTER_PORT"), started.host)
    return ProcessPlace(f"address {address} {size}", None, started.number("RANK"), size)


def _alone(started: Started) -> ProcessPlace:
    return ProcessPlace(None)


def _as_torchrun_child(started: Started, place: ProcessPlace) -> ProcessPlace:
    """A rank that torchrun started, which watches itself: one of as many processes as there are ranks."""
    env, rank = started.env, started.number("RANK")
    if "TORCHELASTIC_RUN_ID" not in env or rank is None or started.command:
        return place
    name = env["TORCHELASTIC_RUN_ID"]
    is_unique = re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", name) is not None  # of `--standalone`
    address = "" if is_unique else address_of(env.get("MASTER_ADDR"), env.get("MASTER_PORT"), started.host)
    return replace(
        place,
        key=place.key or f"torchrun {name} {address}".strip(),
        is_lasting=place.is_lasting or is_unique,
        process=rank,
        processes=started.number("WORLD_SIZE"),
        restart=place.restart + (started.number("TORCHELASTIC_RESTART_COUNT") or 0),
    )


RULES: tuple[Callable[[Started], ProcessPlace | None], ...] = (
    _mpi,
    _slurm_step,
    _slurm_script,
    _skypilot,
    _dstack,
    _pytorch_job,
    _indexed_job,
    _kubernetes_pod,
    _launcher,
    _by_address,
    _alone,
)


def _with_ranks(started: Started, place: ProcessPlace) -> Join:
    """Return the place with the ranks that its process starts."""
    command, world_size = started.command, started.number("WORLD_SIZE")
    processes = place.processes
    if command:
        here = command.ranks_here
        world_size = here * command.nodes if here and command.nodes else None
    elif processes and processes > 1:
        here = world_size // processes if world_size and world_size % processes == 0 else 1
        world_size = world_size or processes
    else:
        here = None  # a script may start ranks itself
    is_one = here == 1 or (here is None and not command)
    return Join(
        key=place.key,
        is_lasting=place.is_lasting,
        process=place.process,
        processes=processes,
        ranks_here=here,
        world_size=world_size,
        rank=(place.process or 0) if is_one else None,
        scheduler=place.scheduler,
        restart=place.restart,
    )

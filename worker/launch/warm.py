"""Starts supervisors, forked from a process that has torch imported where that makes no difference to the run."""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from domain.choices import RECIPES
from domain.clock import SYSTEM_CLOCK, Clock
from domain.launch.plan import TaskContext, plan
from domain.spec import RunSpec
from domain.text.formats import size
from worker.launch.interpreter import Fingerprint, Unusable, find, fingerprint, torchrun_of, watched_paths
from worker.launch.preparation import training_environment
from worker.node import control_groups, processes
from worker.node.attempt_files import LAUNCH_FILE, WARM_FILE
from worker.node.processes import Process
from worker.node.regular_files import open_regular
from worker.node.state_files import read_object, write_whole
from worker.warm.rankzero_warm import channel

log = logging.getLogger(__name__)


class Supervisors:
    """Starts each attempt's supervisor in its own session, so that it outlives this worker."""

    def __init__(self, data: Path, *, is_warm: bool, clock: Clock = SYSTEM_CLOCK) -> None:
        self._data, self._is_warm, self._clock = data, is_warm, clock
        self._lock = threading.Lock()
        self._process: WarmProcess | None = None
        self._wanted: tuple[str, dict[str, str]] | None = None
        """The interpreter and environment of the last launch."""
        self._problem = ""
        """Why nothing can be prepared for it; a part of a sentence."""
        self._quiet_until = 0.0
        self._is_closed = False

    def spawn(
        self, folder: Path, run_id: str, attempt: int, secrets: Mapping[str, str]
    ) -> subprocess.Popen[bytes] | ForkedSupervisor | None:
        """Start the supervisor of an attempt whose launch.json is written; None while it waits for torch.

        The values of `secrets` are in its environment, which its ranks inherit, and nowhere else."""
        if self._is_warm and self._is_awaited(folder, secrets):
            return None
        command = [sys.executable, "-P", "-m", "worker.attempt.supervisor", "--data", str(self._data)]
        command += ["--attempt", f"{run_id}/{attempt}", str(folder)]
        (folder / "logs").mkdir(exist_ok=True)
        log_file = folder / "logs" / "supervisor.log"
        if self._is_warm and (forked := self._fork(command, folder, log_file, secrets)):
            return forked
        with log_file.open("ab") as output:
            return subprocess.Popen(
                command,
                env={**training_environment(os.environ), **secrets},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def status(self) -> str:
        """Whether the next launch finds torch imported, or why not; a part of a sentence."""
        process = self._process
        if not self._is_warm:
            return "off"
        if process is not None:
            is_ready = process.is_ready
            return f"{READY} ({size(process.memory_bytes())})" if is_ready else process.problem or PREPARING
        return self._problem or (PREPARING if _free_memory_bytes() >= FREE_BYTES else NO_MEMORY)

    def want(self, launch: Mapping[str, Any]) -> None:
        """Prepare for launches like this one."""
        python = torchrun_python(launch["argv"])
        if python is None and self._wanted is None:
            self._problem = NO_TORCHRUN
        if python is not None:
            self._problem = ""
            self._wanted = python, import_environment(_environment(launch, {}))

    def prepare(self) -> bool:
        """Import torch ahead for the next launch, if it is due and memory allows; blocks meanwhile.

        Returns whether it tried."""
        if not self._is_warm or self._clock.now() < self._quiet_until:
            return False
        free_bytes = _free_memory_bytes()
        process, environment = self._process, self._wanted
        if process is not None and (free_bytes < FREE_BYTES // 2 or _is_outdated(process, environment)):
            self._replace(None)
            process = None
        if process is None and environment is not None and free_bytes >= FREE_BYTES:
            try:
                process = WarmProcess(*environment, self._data, self._clock)
            except (OSError, Unusable) as error:
                self._problem, self._wanted = f"{NOT_READY}: {error}", None
                log.warning("%s", self._problem)
                return False
            self._replace(process)
            process.wait_until_ready()
            log.info("%s", self.status)
            if not process.is_current:  # killed meanwhile, perhaps for the memory that it took
                self._quiet_until = self._clock.now() + QUIET_S
            return True
        return False

    def close(self) -> None:
        """End the process; what was forked from it continues."""
        self._is_closed = True
        self._replace(None)

    def _replace(self, process: WarmProcess | None) -> None:
        with self._lock:
            previous, self._process = self._process, process
            if self._is_closed and process is not None:
                process.close()
        if previous is not None:
            previous.close()

    def _is_awaited(self, folder: Path, secrets: Mapping[str, str]) -> bool:
        """Whether torch is just being imported for such a launch, which would import it twice more beside that.

        The nodes of a larger run wait for each other already, and for this one they hold a port."""
        process = self._process
        if process is None or not process.is_importing:
            return False
        launch = read_object(folder / LAUNCH_FILE)
        if command_obstacle(launch) or "--standalone" not in launch["argv"]:
            return False
        return process.obstacle(launch, _environment(launch, secrets)) == NOT_YET

    def _fork(
        self, command: list[str], folder: Path, log_file: Path, secrets: Mapping[str, str]
    ) -> ForkedSupervisor | None:
        launch = read_object(folder / LAUNCH_FILE)
        own = training_environment(os.environ)
        supervisor = None
        obstacle = command_obstacle(launch)
        if not obstacle:
            with self._lock:
                obstacle = self._obstacle(launch, _environment(launch, secrets))
                if not obstacle and self._process is not None:
                    supervisor = self._process.fork(command, own, folder, log_file, secrets)
                    obstacle = "" if supervisor else "the process that had torch imported did not answer"
            self.want(launch)
        self._quiet_until = self._clock.now() + QUIET_S
        with suppress(OSError):
            note = IS_WARM if supervisor else f"started plainly, because {obstacle}"
            write_whole(folder / WARM_FILE, json.dumps({"note": note}))
        return supervisor

    def _obstacle(self, launch: Mapping[str, Any], env: Mapping[str, str]) -> str:
        if self._process is None:
            return "no process had torch imported ahead"
        return self._process.obstacle(launch, env) or code_obstacle(launch, self._process.modules)


QUIET_S = 15.0
"""After a start, the time in which nothing is prepared: the cores are the run's. Also after it was killed early."""
FREE_BYTES = 2 << 30
"""It is prepared only while so much memory is free, and ended when less than half of it is."""
READY, NOT_READY = "torch is imported ahead", "torch is not imported ahead"
PREPARING, NO_MEMORY = f"{NOT_READY} yet", f"{NOT_READY}: that needs {size(FREE_BYTES)} of free memory"
NO_TORCHRUN = f"{NOT_READY}: the node's default Python has no torchrun beside it"
IS_WARM = "torchrun and its ranks were forked from a process that had torch imported"


def default_launch(python: str, cpu_threads: int) -> dict[str, Any]:
    """The command and environment of a run with the default interpreter and nothing set."""
    with suppress(Unusable):
        python = find(python)
    context = TaskContext(python=python, torchrun=torchrun_of(python), cpu_threads=cpu_threads)
    launch_plan = plan(RunSpec(target=RECIPES[0]), context)
    return {"argv": list(launch_plan.argv), "env": dict(launch_plan.env)}


def _environment(launch: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, str]:
    """The environment in which such a launch imports torch."""
    own = training_environment(os.environ)
    return processes.merged_environment(own, {**secrets, **launch["env"]}, launch["argv"][0])


def _is_outdated(process: WarmProcess, environment: tuple[str, dict[str, str]] | None) -> bool:
    if environment is None:
        return False
    python, env = environment
    return not process.is_current or python != process.python or bool(process.differing(env))


def _free_memory_bytes() -> int:
    """Bytes that this machine and its control groups still allow."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    limit = control_groups.free_memory_bytes()
    return available if limit is None else min(available, limit)


# One process that has torch imported, seen from the worker that started it.

PROGRAM = Path(__file__).parents[1] / "warm" / "start.py"
ANSWER_LIMIT_S = 15.0
"""On a machine that is busy with something else; starting torchrun plainly takes no less time there."""
IMPORT_LIMIT_S = 30.0
"""For so long a launch waits for the import of torch."""
NOT_YET = "torch is not imported ahead yet"


class ForkedSupervisor:
    """A supervisor that was forked: not this worker's child, but its process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def poll(self) -> int | None:
        """None while it runs; its exit code is not known here."""
        return None if processes.is_alive(self._process) else 0


class WarmProcess:
    """Imports torch in this environment and waits for requests; it ends with its worker. Raises Unusable, OSError."""

    def __init__(self, python: str, env: Mapping[str, str], data: Path, clock: Clock) -> None:
        self._clock = clock
        self.python, self.env = python, import_environment(env)
        self._paths = watched_paths(python, self.env)
        self._marks: Fingerprint = fingerprint(self._paths)
        self._limits = limits()
        self.modules: frozenset[str] = frozenset()
        self._reads: frozenset[str] | None = None
        """The variables that were read while torch was imported; None: any may have been."""
        self.problem = ""
        self._began_at = clock.now()
        self._connection, theirs = socket.socketpair()
        command = [python, "-u", str(PROGRAM), "--data", str(data), "--connection", str(theirs.fileno())]
        (data / "node").mkdir(parents=True, exist_ok=True)
        with theirs, (data / "node" / "warm.log").open("wb") as output:
            self._process = subprocess.Popen(
                command, env=self.env, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip

    def wait_until_ready(self) -> None:
        """Wait until torch is imported; then `problem` says why nothing can be forked from it, if so."""
        received = None
        with suppress(OSError, ValueError):
            received = channel.receive(self._connection)
        message: dict[str, Any] = received[0] if received else {"problem": self._import_problem()}
        self.problem = message["problem"]
        self.modules = frozenset(message.get("modules", ()))
        if READERS_OF_THEIR_PREFIX.issuperset(message.get("readers_of_all", ("",))):
            self._reads = frozenset(message["reads"])
        self._connection.settimeout(ANSWER_LIMIT_S)

    def _import_problem(self) -> str:
        """Why it ended before torch was imported; nothing where it was killed: the next one may succeed."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ANSWER_LIMIT_S)
        was_killed = self._process.returncode in (-signal.SIGKILL, -signal.SIGTERM)
        return "" if was_killed else "torch could not be imported ahead"

    @property
    def is_current(self) -> bool:
        """Whether it would be the same if it were started now; one that cannot be forked from is not tried again."""
        return (
            (self._process.poll() is None or bool(self.problem))
            and fingerprint(self._paths) == self._marks
            and limits() == self._limits
        )

    @property
    def is_ready(self) -> bool:
        """Whether it can fork."""
        return bool(self.modules) and not self.problem and self._process.poll() is None

    @property
    def is_importing(self) -> bool:
        """Whether it can fork soon."""
        is_late = self._clock.now() - self._began_at > IMPORT_LIMIT_S
        return not (self.modules or self.problem or is_late) and self._process.poll() is None

    def obstacle(self, launch: Mapping[str, Any], env: Mapping[str, str]) -> str:
        """Why this launch cannot be forked from it, as a sentence; else nothing."""
        if torchrun_python(launch["argv"]) != self.python:
            return "it trains with another interpreter than the last run"
        if different := self.differing(env):
            return f"{different[0]} has changed since torch was imported"
        if fingerprint(self._paths) != self._marks:
            return "the interpreter's packages have changed"
        if limits() != self._limits:
            return "the worker's limits have changed"
        return "" if self.is_ready else (self.problem or NOT_YET)

    def differing(self, env: Mapping[str, str]) -> list[str]:
        """The variables that differ from those with which torch was imported, of the ones that it may have read."""
        return differing(self.env, env, self._reads)

    def fork(
        self, command: Sequence[str], env: Mapping[str, str], folder: Path, log_file: Path, secrets: Mapping[str, str]
    ) -> ForkedSupervisor | None:
        """Fork a supervisor with a torchrun that waits for its command; None if it does not answer.

        The secrets travel in a file without a name that only the forked process reads: the other one, from which
        later runs are forked, never has them in its memory."""
        request = {"command": list(command), "env": dict(env), "cwd": str(folder), "log": str(log_file)}
        try:
            with os.fdopen(os.memfd_create("environment"), "wb") as more:
                more.write(json.dumps(dict(secrets)).encode())
                more.seek(0)
                channel.send(self._connection, request, [more.fileno()])
            received = channel.receive(self._connection)
        except (OSError, ValueError):
            received = None
        if received is None:
            return None
        pid = int(received[0]["pid"])
        return ForkedSupervisor(processes.find(pid) or Process(pid, 0))

    def memory_bytes(self) -> int:
        """Resident bytes; most of them are shared with what was forked from it."""
        with suppress(OSError, ValueError, IndexError):
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")
        return 0

    def close(self) -> None:
        """End it; what was forked from it continues."""
        self._connection.close()
        self._process.kill()
        self._process.wait()


# The conditions under which a forked torchrun is the same as a started one; each obstacle is a sentence.

PER_RUN = re.compile(
    r"RANKZERO_\w+|TORCHELASTIC_ERROR_FILE|TORCH_ELASTIC_SHUTDOWN_TIMEOUT|TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    r"|TORCHINDUCTOR_CACHE_DIR|TRITON_CACHE_DIR|(CUDA|ROCR)_VISIBLE_DEVICES|ACCELERATE_USE_CPU|(GLOO|NCCL)_SOCKET_IFNAME"
)
"""Variables that may differ from run to run: they are read only when they are used."""
NATIVE = re.compile(
    r"(?!\w*_(KEY|TOKEN)$)(PYTHON|LD_|LC_|MALLOC_|MIMALLOC_|TCMALLOC_|GLIBC_|OPENSSL_|TORCH|PYTORCH_|C10_|TRITON_|KINETO_|AOT|TQDM_"
    r"|OMP_|GOMP_|KMP_|LIBOMP|ACC_DEVICE|ACC_PROFLIB|TBB_|MKL|DNNL_|ONEDNN_|INTEL_|OPENBLAS_|GOTO_|BLIS_|VECLIB_|NUMEXPR_|NPY_|NUMPY_"
    r"|GFORTRAN_|OMPI_|MPI_|I_MPI_|PMI|UCX_|CCL_|CUDA_|CUDNN|CUBLAS|CUSPARSE|CUSOLVER|CUFFT|NV|NCCL_|GLOO_|TP_(SOCKET|VERBOSE)"
    r"|HIP|HSA_|ROC|MIOPEN_|AMD|GPU_|SYCL_|ZE_|ONEAPI_|XPU|XLA_|[A-Z]*SAN_OPTIONS)\w*"
    r"|__PYVENV_LAUNCHER__|LANG|LANGUAGE|LOCPATH|TZ|TZDIR|PATH|HOME|TMPDIR|TEMP|TMP"
)
"""Variables that Python's start and native libraries may read unseen, of which none is a credential; tqdm, which torch
imports, reads all of its."""
READERS_OF_THEIR_PREFIX = frozenset({"tqdm"})
"""Packages that look through all variables for the ones of theirs that `NATIVE` names."""
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


def differing(prepared: Mapping[str, str], env: Mapping[str, str], reads: Collection[str] | None) -> list[str]:
    """The variables that differ and count: those in `reads` and those that are read unseen; None: all of them."""
    environment = import_environment(env)
    names = {name for name in {*prepared, *environment} if prepared.get(name) != environment.get(name)}
    return sorted(name for name in names if reads is None or name in reads or NATIVE.fullmatch(name))


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
    with suppress(OSError), open_regular(path) as file:
        if match := _IMPORT_TIME.search(file.read(MOST_BYTES)):
            return f"{path.name} names {match[0].decode()[1:-1]}, which must be set before torch is imported"
    return ""

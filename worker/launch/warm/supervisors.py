"""Starts supervisors, forked from a process that has torch imported where that makes no difference to the run."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from domain.choices import RECIPES
from domain.launch.plan import TaskContext, plan
from domain.spec import RunSpec
from domain.text.formats import size
from worker.launch.interpreter import Unusable, find, torchrun_of
from worker.launch.preparation import training_environment
from worker.launch.warm import conditions
from worker.launch.warm.process import NOT_YET, ForkedSupervisor, WarmProcess
from worker.node import control_groups, processes
from worker.node.attempt_files import LAUNCH_FILE, WARM_FILE
from worker.node.state_files import read_object, write_whole

log = logging.getLogger(__name__)
QUIET_S = 15.0
"""After a start, the time in which nothing is prepared: the cores are the run's. Also after it was killed early."""
FREE_BYTES = 2 << 30
"""It is prepared only while so much memory is free, and ended when less than half of it is."""
READY, NOT_READY = "torch is imported ahead", "torch is not imported ahead"
PREPARING, NO_MEMORY = f"{NOT_READY} yet", f"{NOT_READY}: that needs {size(FREE_BYTES)} of free memory"
NO_TORCHRUN = f"{NOT_READY}: the node's default Python has no torchrun beside it"
IS_WARM = "torchrun and its ranks were forked from a process that had torch imported"


class Supervisors:
    """Starts each attempt's supervisor in its own session, so that it outlives this worker."""

    def __init__(self, data: Path, *, is_warm: bool) -> None:
        self._data, self._is_warm = data, is_warm
        self._lock = threading.Lock()
        self._process: WarmProcess | None = None
        self._wanted: tuple[str, dict[str, str]] | None = None
        """The interpreter and environment of the last launch."""
        self._problem = ""
        """Why nothing can be prepared for it; a part of a sentence."""
        self._quiet_until = 0.0
        self._is_closed = False

    def spawn(self, folder: Path, run_id: str, attempt: int) -> subprocess.Popen[bytes] | ForkedSupervisor | None:
        """Start the supervisor of an attempt whose launch.json is written; None while it waits for torch."""
        if self._is_warm and self._is_awaited(folder):
            return None
        command = [sys.executable, "-P", "-m", "worker.attempt.supervisor", "--data", str(self._data)]
        command += ["--attempt", f"{run_id}/{attempt}", str(folder)]
        (folder / "logs").mkdir(exist_ok=True)
        log_file = folder / "logs" / "supervisor.log"
        if self._is_warm and (forked := self._fork(command, folder, log_file)):
            return forked
        with log_file.open("ab") as output:
            return subprocess.Popen(
                command,
                env=training_environment(os.environ),
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
        python = conditions.torchrun_python(launch["argv"])
        if python is None and self._wanted is None:
            self._problem = NO_TORCHRUN
        if python is not None:
            self._problem = ""
            env = processes.merged_environment(training_environment(os.environ), launch["env"])
            self._wanted = python, conditions.import_environment(env)

    def prepare(self) -> bool:
        """Import torch ahead for the next launch, if it is due and memory allows; blocks meanwhile.

        Returns whether it tried."""
        if not self._is_warm or time.monotonic() < self._quiet_until:
            return False
        free_bytes = _free_memory_bytes()
        process, wanted = self._process, self._wanted
        if process is not None and (free_bytes < FREE_BYTES // 2 or _is_outdated(process, wanted)):
            self._replace(None)
            process = None
        if process is None and wanted is not None and free_bytes >= FREE_BYTES:
            try:
                process = WarmProcess(*wanted, self._data)
            except (OSError, Unusable) as error:
                self._problem, self._wanted = f"{NOT_READY}: {error}", None
                log.warning("%s", self._problem)
                return False
            self._replace(process)
            process.wait_until_ready()
            log.info("%s", self.status)
            if not process.is_current:  # killed meanwhile, perhaps for the memory that it took
                self._quiet_until = time.monotonic() + QUIET_S
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

    def _is_awaited(self, folder: Path) -> bool:
        """Whether torch is just being imported for such a launch, which would import it twice more beside that.

        The nodes of a larger run wait for each other already, and for this one they hold a port."""
        process = self._process
        if process is None or not process.is_importing:
            return False
        launch = read_object(folder / LAUNCH_FILE)
        if conditions.command_obstacle(launch) or "--standalone" not in launch["argv"]:
            return False
        env = processes.merged_environment(training_environment(os.environ), launch["env"])
        return process.obstacle(launch, env) == NOT_YET

    def _fork(self, command: list[str], folder: Path, log_file: Path) -> ForkedSupervisor | None:
        launch = read_object(folder / LAUNCH_FILE)
        own = training_environment(os.environ)
        supervisor = None
        obstacle = conditions.command_obstacle(launch)
        if not obstacle:
            with self._lock:
                obstacle = self._obstacle(launch, processes.merged_environment(own, launch["env"]))
                if not obstacle and self._process is not None:
                    supervisor = self._process.fork(command, own, folder, log_file)
                    obstacle = "" if supervisor else "the process that had torch imported did not answer"
            self.want(launch)
        self._quiet_until = time.monotonic() + QUIET_S
        with suppress(OSError):
            note = IS_WARM if supervisor else f"started plainly, because {obstacle}"
            write_whole(folder / WARM_FILE, json.dumps({"note": note}))
        return supervisor

    def _obstacle(self, launch: Mapping[str, Any], env: Mapping[str, str]) -> str:
        if self._process is None:
            return "no process had torch imported ahead"
        return self._process.obstacle(launch, env) or conditions.code_obstacle(launch, self._process.modules)


def default_launch(python: str, cpu_threads: int) -> dict[str, Any]:
    """The command and environment of a run with the default interpreter and nothing set."""
    with suppress(Unusable):
        python = find(python)
    context = TaskContext(python=python, torchrun=torchrun_of(python), cpu_threads=cpu_threads)
    launch_plan = plan(RunSpec(target=RECIPES[0]), context)
    return {"argv": list(launch_plan.argv), "env": dict(launch_plan.env)}


def _is_outdated(process: WarmProcess, wanted: tuple[str, dict[str, str]] | None) -> bool:
    if wanted is None:
        return False
    python, env = wanted
    return not process.is_current or python != process.python or env != process.env


def _free_memory_bytes() -> int:
    """Bytes that this machine and its control groups still allow."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    limit = control_groups.free_memory_bytes()
    return available if limit is None else min(available, limit)

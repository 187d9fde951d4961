"""Make the folder of a process that watches itself, and start its companion: `rankzero.watch()` asks for it.

Run as `python -P -m worker.watched.attach`: it reads what to watch as JSON from its stdin, and answers with a line of
JSON as soon as the folder is there. With a folder as its argument it waits until that is delivered, as a front does.
Only the standard library is imported: a notebook waits for it."""

from __future__ import annotations

import getpass
import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from domain.clock import SYSTEM_CLOCK, Clock
from domain.watching.joins import Join, joined_by
from worker.node import processes
from worker.node.attempt_files import LAUNCH_FILE, LOCK_FILE, STATE_FILE
from worker.watched.companion_process import CompanionProcess
from worker.watched.existing_files import remember_files_before
from worker.watched.folder import ATTEMPT, Watched, make, new_id
from worker.watched.front import launch_document

RANK_LOGS_VARIABLE = "RANKZERO_RANK_LOGS"


def main(arguments: list[str]) -> int:
    """Answer the question on stdin, or wait for a delivery."""
    if arguments:
        wait_until_delivered(Path(arguments[0]), is_last="--last" in arguments)
        return 0
    try:
        folder, answer = attach(json.load(sys.stdin), os.environ, data_directory())
    except (OSError, ValueError, LookupError) as error:
        answer, folder = {"problem": f"its folder could not be made: {error}"}, None
    print(json.dumps(answer), flush=True)
    os.close(1)
    if folder is not None:
        remember_files_before(folder / ATTEMPT, Path.cwd(), answer["state"]["started_at"])
        CompanionProcess(folder, _keep_silent).start()
    return 0


def attach(
    request: Mapping[str, Any], env: Mapping[str, str], data: Path, clock: Clock = SYSTEM_CLOCK
) -> tuple[Path, dict[str, Any]]:
    """Make the folder of the process in a request; return it and the answer. Raises OSError, LookupError."""
    if (own := processes.find(request["pid"])) is None:
        raise LookupError(f"there is no process {request['pid']}")
    join = joined_by(env, request["argv"], request["run"], socket.gethostname())
    watched = watched_process(request, join, clock.wall())
    folder = make(data, watched)
    attempt = folder / ATTEMPT
    launch = launch_document(attempt, watched, join) | {"attached": True, "is_merged": False}
    launch["env"].pop(RANK_LOGS_VARIABLE, None)  # what its children print is written through its own streams
    probe = launch["env"]["PYTHONPATH"]
    launch["env"]["PYTHONPATH"] = os.pathsep.join(filter(None, [probe, env.get("PYTHONPATH")]))
    state = running_state(own, launch["first_rank"], watched.started_at)
    (attempt / LAUNCH_FILE).write_text(json.dumps(launch))
    (attempt / LOCK_FILE).touch(0o600)
    (attempt / STATE_FILE).write_text(json.dumps(state))
    is_last = join.scheduler is not None or request["pid"] == 1 or request["parent"] in (0, 1)
    answer = {"folder": str(folder), "run_id": watched.run_id, "rank": launch["first_rank"], "env": launch["env"]}
    return folder, answer | {"probe": probe, "state": state, "is_last": is_last}


def watched_process(request: Mapping[str, Any], join: Join, now: float) -> Watched:
    """Return the description of a process that watches itself."""
    return Watched(
        watch_id=new_id(),
        run_id=new_id(),
        argv=request["argv"],
        cwd=str(Path.cwd()),
        host=socket.gethostname(),
        account=account_name(),
        pid=request["pid"],
        started_at=now,
        name=request["name"],
        project=request["project"],
        tags=request["tags"],
        key=join.key,
        is_lasting=join.is_lasting,
        process=join.process,
        processes=join.processes,
        ranks_here=join.ranks_here,
        world_size=join.world_size,
        scheduler=join.scheduler,
        python=sys.executable,
        look_only=request["look_only"],
    )


def running_state(own: processes.Process, rank: int, now: float) -> dict[str, Any]:
    """Return the state that a supervisor would write, which the process itself is."""
    return {
        "pid": own.pid, "start_ticks": own.start_ticks, "boot_id": processes.boot_id(),
        "state": "running", "ranks": {str(rank): own.pid}, "launcher_pid": own.pid, "launch_error": None,
        "started_at": now, "running_at": now, "stop_requested_at": None, "ended_at": None,
        "exit_code": None, "signal": None, "killed": [], "out_of_memory_kills": 0,
    }  # fmt: skip


def wait_until_delivered(folder: Path, *, is_last: bool) -> None:
    """Wait for the companion as a front does; `is_last`: it ends with us."""
    CompanionProcess(folder, _keep_silent).wait_until_delivered(is_last, SYSTEM_CLOCK.pause)


def account_name() -> str:
    """Return the name of this account; its number where a container has no name for it."""
    try:
        return getpass.getuser()
    except (LookupError, OSError):
        return str(os.getuid())


def data_directory() -> Path:
    """Return the absolute path of RANKZERO_DATA, else of the platform's directory for user data."""
    from platformdirs import user_data_path

    return Path(os.environ.get("RANKZERO_DATA") or user_data_path("rankzero", appauthor=False)).expanduser().absolute()


def _keep_silent(sentence: str) -> None:
    """The process itself tells people how it goes."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

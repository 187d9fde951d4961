"""Make the folder of a process that watches itself, and start its companion: `rankzero.watch()` asks for it.

Run as `python -P -m worker.watched.attach`: it reads what to watch as JSON from its stdin, and answers with a line of
JSON as soon as the folder is there. With a folder as its argument it waits until that is delivered, as a front does.
Only the standard library is imported: a notebook waits for it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from domain.clients.addresses import data_directory
from domain.clock import SYSTEM_CLOCK, Clock
from domain.watching.joins import joined_by
from worker.node import processes
from worker.node.attempt_files import LAUNCH_FILE, LOCK_FILE, STATE_FILE
from worker.watched.companion_process import CompanionProcess
from worker.watched.existing_files import remember_files_before
from worker.watched.folder import ATTEMPT, make
from worker.watched.front import WatchOptions, described, launch_document

RANK_LOGS_VARIABLE = "RANKZERO_RANK_LOGS"


def main(arguments: list[str]) -> int:
    """Answer the question on stdin, or wait for a delivery."""
    if arguments:
        wait_until_delivered(Path(arguments[0]), is_last="--last" in arguments)
        return 0
    try:
        folder, answer = attach(json.load(sys.stdin), os.environ, data_directory(None))
    except (OSError, ValueError, LookupError) as error:
        answer, folder = {"problem": f"its folder could not be made: {error}"}, None
    print(json.dumps(answer), flush=True)
    os.close(1)
    if folder is not None:
        with suppress(OSError):  # a full disk
            remember_files_before(folder / ATTEMPT, Path.cwd(), answer["state"]["started_at"])
        CompanionProcess(folder, _keep_silent).start()
    return 0


def attach(
    request: Mapping[str, Any], env: Mapping[str, str], data: Path, clock: Clock = SYSTEM_CLOCK
) -> tuple[Path, dict[str, Any]]:
    """Make the folder of the process in a request; return it and the answer. Raises OSError, LookupError."""
    if (own := processes.find(request["pid"])) is None:
        raise LookupError(f"there is no process {request['pid']}")
    host, options = os.uname().nodename, WatchOptions(**request["options"])
    join = joined_by(env, options.argv, options.key, host)
    now = clock.wall()
    watched = replace(described(options, join, host), pid=own.pid, started_at=now, python=sys.executable)
    folder = make(data, watched)
    attempt = folder / ATTEMPT
    launch = own_launch(launch_document(attempt, watched, join), env)
    probe, _, _ = launch["env"]["PYTHONPATH"].partition(os.pathsep)
    state = running_state(own, launch["first_rank"], now)
    (attempt / LAUNCH_FILE).write_text(json.dumps(launch))
    (attempt / LOCK_FILE).touch(0o600)
    (attempt / STATE_FILE).write_text(json.dumps(state))
    is_last = join.scheduler is not None or request["pid"] == 1 or request["parent"] in (0, 1)
    answer = {"folder": str(folder), "run_id": watched.run_id, "rank": launch["first_rank"], "env": launch["env"]}
    return folder, answer | {"probe": probe, "state": state, "is_last": is_last}


def own_launch(launch: dict[str, Any], env: Mapping[str, str]) -> dict[str, Any]:
    """Return launch.json of a process that is the only rank, with all that it and its children print in its log."""
    own = {name: value for name, value in launch["env"].items() if name != RANK_LOGS_VARIABLE}
    own["PYTHONPATH"] = os.pathsep.join(filter(None, [own["PYTHONPATH"], env.get("PYTHONPATH")]))
    form = {"launcher": "python", "output": f"rank{launch['first_rank']}", "is_merged": False}
    return launch | form | {"env": own, "attached": True}


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


def _keep_silent(sentence: str) -> None:
    """The process itself tells people how it goes."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

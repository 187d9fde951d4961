"""The folder of a process that watches itself, as the worker's own code reads it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.virtual_time import VirtualTime
from worker.attempt import supervision
from worker.attempt.reports import end_of, report_of_life
from worker.watched.attach import attach
from worker.watched.folder import read

OPTIONS: dict[str, Any] = {"argv": ["python", "train.py"], "name": "n", "tags": ["t"], "key": None}
REQUEST: dict[str, Any] = {"pid": os.getpid(), "parent": os.getppid(), "options": OPTIONS}


def test_the_folder_is_that_of_a_running_attempt(tmp_path: Path):
    folder, answer = attach(REQUEST, {"PYTHONPATH": "/mine"}, tmp_path, VirtualTime(5000.0))
    attempt, watched = folder / "attempt", read(folder)
    assert (watched.pid, watched.started_at, watched.argv, watched.tags) == (
        os.getpid(),
        5000.0,
        OPTIONS["argv"],
        ["t"],
    )
    state = json.loads((attempt / "supervisor.json").read_text())
    assert state == answer["state"]
    assert supervision.is_supervised(state)
    assert state["ranks"] == {"0": os.getpid()}
    report = report_of_life(attempt, "starting", state["pid"])
    assert (report.argv, report.cwd) == (OPTIONS["argv"], str(Path.cwd()))
    env = answer["env"]
    assert (env["RANKZERO_RUN_ID"], env["RANKZERO_ATTEMPT"], env["RANKZERO_NODE_RANK"]) == (watched.run_id, "1", "0")
    assert env["PYTHONPATH"].endswith(":/mine")
    assert (Path(answer["probe"]) / "sitecustomize.py").is_file()


@pytest.mark.parametrize(
    ("changes", "trace", "state", "words"),
    [
        ({"exit_code": 0}, "", "succeeded", ""),
        ({"exit_code": 130, "stop_requested_at": 3.0}, "", "stopped", "Stopped."),
        (
            {"exit_code": 1},
            'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nKeyError: "lr"\n',
            "failed",
            'KeyError: "lr"',
        ),
    ],
)
def test_its_end_is_explained_as_any_runs(tmp_path: Path, changes, trace, state, words):
    folder, answer = attach(REQUEST, {}, tmp_path)
    attempt = folder / "attempt"
    (attempt / "logs" / "rank0.err").write_text(trace)
    launch = json.loads((attempt / "launch.json").read_text())
    ended = {**answer["state"], "state": "ended", "ended_at": 9.0, **changes}
    end = end_of(attempt, ended, launch, "here", 0, shut_down=False)
    assert end.state == state
    assert words in (end.message or "")


def test_a_process_that_has_ended_cannot_be_watched(tmp_path: Path):
    with pytest.raises(LookupError):
        attach(REQUEST | {"pid": 2**22 + 1}, {}, tmp_path)


def test_a_key_and_the_variables_of_a_launcher_make_it_join(tmp_path: Path):
    env = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    folder, answer = attach(REQUEST | {"options": OPTIONS | {"key": "mine"}}, env, tmp_path)
    watched = read(folder)
    assert (watched.process, watched.processes, watched.is_lasting) == (1, 2, True)
    assert watched.key is not None
    assert "mine" in watched.key
    assert (answer["rank"], answer["state"]["ranks"]) == (1, {"1": os.getpid()})


def test_a_notebook_has_no_command_of_its_own(tmp_path: Path):
    folder, answer = attach(REQUEST | {"options": {"argv": [], "name": "study"}}, {}, tmp_path)
    launch = json.loads((folder / "attempt" / "launch.json").read_text())
    assert (launch["argv"], launch["launcher"], launch["output"], launch["attached"]) == ([], "python", "rank0", True)
    assert (read(folder).name, read(folder).python) == ("study", sys.executable)
    assert answer["rank"] == 0

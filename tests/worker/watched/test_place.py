"""The devices and the files of a watched command's place."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from domain.messages import Device, Reason
from domain.watching.messages import WatchAnswer
from tests.worker.virtual_node import waiting
from tests.worker.watched.left import left_behind
from tests.worker.watched.watching import Watching
from worker.watched import folder as folders
from worker.watched.companion import is_live, lock
from worker.watched.folder import Watched, read
from worker.watched.guest import GuestMachine
from worker.watched.place import own_devices, place_in, provisional, request_of
from worker.watched.progress import LIVE_WITHIN_S, PROGRESS_FILE, read_progress

GPUS = [Device(id=f"GPU-{number}", kind="cuda", name="H200") for number in range(4)]
CORES = [Device(id=f"cpu:{number}", kind="cpu", name="EPYC") for number in range(4)]


def watched(**fields: object) -> Watched:
    given = {
        "watch_id": "a" * 10,
        "run_id": "b" * 10,
        "argv": ["python", "t.py", "--api-key", "hunter2222"],
        "cwd": "/w",
    }
    return Watched(**given | {"host": "h", "account": "m", "pid": 1, "started_at": 1.0} | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "env", "expected"),
    [
        ({"ranks_here": 4}, {}, GPUS),
        ({"ranks_here": None}, {"LOCAL_RANK": "1"}, GPUS),
        ({"ranks_here": 1, "processes": 1}, {"LOCAL_RANK": "1"}, GPUS),
        ({"ranks_here": 1, "processes": 8}, {"SLURM_LOCALID": "2"}, GPUS[2:3]),
        ({"ranks_here": 1}, {"OMPI_COMM_WORLD_LOCAL_RANK": "3"}, GPUS[3:]),
        ({"ranks_here": 1}, {"LOCAL_RANK": "7"}, GPUS),
        ({"ranks_here": 1}, {}, GPUS),
    ],
)
def test_a_rank_that_sees_the_gpus_of_all_has_that_of_its_local_rank(fields, env, expected):
    assert own_devices(GPUS, watched(**fields), env) == expected


def test_without_gpus_a_command_has_as_many_slots_as_ranks():
    assert own_devices(CORES, watched(ranks_here=2), {}) == CORES[:2]
    assert own_devices(CORES, watched(), {}) == CORES[:1]


def test_secrets_of_the_command_line_are_not_told(tmp_path: Path):
    folder = left_behind(tmp_path / "data", tmp_path / "cwd")
    command = watched(argv=["python", "t.py", "--api-key", "hunter2222", "x" * 9000])
    request = request_of(command, GuestMachine(folder, read(folder)).facts())
    assert "hunter2222" not in request.model_dump_json() and len(request.command.argv[-1]) == 4096


def test_the_ranks_before_an_answer_are_those_that_the_environment_tells():
    assert provisional(watched(processes=2, world_size=8), GPUS).spec.world_size == 8
    assert provisional(watched(processes=2, ranks_here=3), GPUS).spec.world_size == 6
    assert provisional(watched(), CORES).spec.world_size == 1


def test_an_answer_without_a_place_is_no_place():
    with pytest.raises(ValueError, match="no place"):
        place_in(WatchAnswer(place="joined"))


def test_a_folder_is_live_while_its_companion_holds_it_or_renews_its_file_on_another_machine(tmp_path: Path):
    folder = left_behind(tmp_path / "data", tmp_path / "cwd")
    assert not is_live(folder)
    descriptor = lock(folder)
    assert is_live(folder)
    os.close(descriptor)
    (folder / PROGRESS_FILE).write_text('{"state": "registered"}')
    assert not is_live(folder), "locks tell on this machine"
    text = (folder / folders.WATCH_FILE).read_text()
    (folder / folders.WATCH_FILE).write_text(text.replace(os.uname().nodename, "another"))
    assert is_live(folder)
    before = time.time() - LIVE_WITHIN_S - 1.0
    os.utime(folder / PROGRESS_FILE, (before, before))
    assert not is_live(folder)


def test_what_another_version_told_is_nothing(tmp_path: Path):
    (tmp_path / PROGRESS_FILE).write_text('{"mood": "good"}')
    assert read_progress(tmp_path).state == ""


@pytest.mark.parametrize("host", ["gpu-3", os.uname().nodename])
def test_the_end_of_a_machine_that_went_is_told_as_it_is(tmp_path: Path, host: str):
    watching = Watching(tmp_path)
    with watching.time:
        watching.server.is_away = True
        watching.watch(waiting, host=host)
        watching.time.advance(10.0)
        watching.kill_companion()
        watching.machine.restart()
        watching.time.advance(1.0)
        watching.server.is_away = False
        watching.start_companion()
        assert watching.until_over()
    end = watching.server.end()
    assert (end.state, end.reason) == ("failed", Reason.NODE_LOST)
    own = "restarted while the run was training"
    assert (
        own if host != "gpu-3" else "Its end was never recorded: gpu-3, or the watching there, ended"
    ) in end.message

"""The folders of ended attempts are removed after a while where an option says so, and never more than those."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from domain.assignments import Resend, ResumeFrom
from domain.checkpoint_use.tasks import DesiredCheckpointTask, TaskKind
from domain.spec import RunSpec
from tests.virtual_time import HOUR_S
from tests.worker.node_under_test import RUN
from tests.worker.virtual_node import VirtualNode, checkpoint, nothing, waiting
from worker.checkpoints.upload import REMOVED
from worker.session.answers import DesiredState
from worker.trainings import ended_attempts
from worker.trainings.ended_attempts import LOOK_EVERY_S, removable

DAY_S = 24 * HOUR_S
OTHER_RUN = "zzzzzzzzzz"


@pytest.fixture
def node(virtual_node: VirtualNode) -> VirtualNode:
    """A node that keeps the folders of ended attempts for two days."""
    virtual_node.node = replace(virtual_node.node, keep_attempts_s=2 * DAY_S)
    virtual_node.start_worker()
    return virtual_node


def failing(process) -> int:
    return 3


def train(node, program=nothing, attempt=1, **more) -> Path:
    """Let an attempt train and end; return its folder."""
    script = node.script(program, f"train-{attempt}.py")
    node.assign(node.assignment(script, attempt=attempt, fence=attempt, **more))
    node.until_settled()
    node.assign()
    return node.dir(attempt)


def pass_days(node, days: float) -> None:
    """Let the calendar go on by days, and the node look once."""
    node.time.set_wall(node.time.wall() + days * DAY_S)
    look(node)


def look(node) -> None:
    node.time.advance(1.2 * LOOK_EVERY_S)


def test_a_folder_goes_once_its_time_is_over(node):
    folder = train(node, checkpoint("last.pt"))
    pass_days(node, 1.9)
    assert (folder / "work/last.pt").exists()
    pass_days(node, 0.2)
    assert not folder.parent.exists()


def test_all_are_kept_without_the_option(virtual_node):
    folder = train(virtual_node)
    pass_days(virtual_node, 30)
    assert folder.exists()


def test_a_resend_is_answered_with_how_long_they_are_kept(node):
    train(node, checkpoint("last.pt"))
    pass_days(node, 3)
    resend = Resend(
        checkpoint_id=4, run_id=RUN, attempt=1, fence=1, node_rank=0, path="work/last.pt",
        sha256=node.server.checkpoints[0]["sha256"],
    )  # fmt: skip
    node.daemon.set_desired_state(DesiredState(version="2", assignments=[], resends=[resend]))
    node.until(lambda: node.server.answered)
    assert node.server.answered == {4: REMOVED.format("2 d")}


def test_the_newest_attempt_stays_unless_it_succeeded(node):
    earlier, newest = train(node, failing), train(node, failing, attempt=2)
    pass_days(node, 5)
    assert not earlier.exists() and newest.exists()


def test_a_run_that_trains_keeps_all_of_its_attempts(node):
    earlier = train(node, failing)
    node.assign(node.assignment(node.script(waiting), attempt=2, fence=2))
    node.until_ready(2)
    pass_days(node, 5)
    assert earlier.exists()
    node.let_end(2)
    node.until(lambda: not node.daemon.attempts)
    node.assign()
    pass_days(node, 3)
    assert not earlier.exists() and not node.dir(2).exists()


def test_a_folder_in_which_another_run_trains_stays(node):
    workplace = train(node)
    assignment = node.assignment(node.script(waiting), fence=2, spec={"workdir": str(workplace / "work")})
    node.assign(assignment.model_copy(update={"run_id": OTHER_RUN}))
    node.until(lambda: (workplace / "work/ready").exists())
    pass_days(node, 5)
    assert workplace.exists()


def test_a_run_whose_checkpoint_is_worked_on_keeps_its_folder(node):
    folder = train(node, checkpoint("last.pt"))
    source = ResumeFrom(checkpoint_id=0, name="work/last.pt", sha256="0" * 64, size_bytes=10, download_path="/unused")
    task = DesiredCheckpointTask(
        task_id=1, kind=TaskKind.MERGE, run_id=RUN, attempt=1, fence=1, node_rank=0, spec=RunSpec(target="train.py"),
        sources=[source], is_cancelled=True,
    )  # fmt: skip
    desired = DesiredState(version="2", assignments=[], checkpoint_tasks=[task])
    node.trainings.set_desired_state(desired, may_start=True)
    pass_days(node, 5)
    assert folder.exists()
    node.assign()
    look(node)
    assert not folder.exists()


def test_what_the_server_did_not_get_stays(node):
    incomplete = train(node, lambda process: process.write("half.pt", b"PK\x03\x04 cut short"))
    pass_days(node, 5)
    assert (incomplete / "work/half.pt").exists()


def test_what_was_not_sent_because_a_person_ended_that_stays(node):
    assignment = node.assignment(node.script(checkpoint("last.pt")))
    node.server.is_away = True
    node.assign(assignment)
    node.until(lambda: node.daemon.attempts and node.daemon.attempts[0].is_over)
    node.assign(assignment.model_copy(update={"ends_delivery": True}))
    node.server.is_away = False
    node.until_settled()
    pass_days(node, 5)
    assert (node.dir() / "work/last.pt").exists()


def test_links_and_folders_of_runs_in_place_stay(node, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "data").touch()
    linked, in_place = train(node), train(node, attempt=2)
    (linked / "work/link").symlink_to(outside)
    train(node, attempt=3, spec={"workdir": str(in_place / "work")})
    pass_days(node, 5)
    assert not linked.exists() and (outside / "data").exists() and in_place.exists()


def test_the_oldest_go_early_where_space_is_short(node, monkeypatch):
    folders = [train(node, attempt=number) for number in (1, 2, 3)]
    for number, folder in enumerate(folders):
        os.utime(folder / "worker/reported.json", (0, node.time.wall() - (3 - number) * HOUR_S))
    free = iter([True, True, False])
    monkeypatch.setattr(ended_attempts, "is_short", lambda _: next(free, False))
    look(node)
    assert [folder.exists() for folder in folders] == [False, False, True]


def test_what_a_killed_worker_left_is_removed(node):
    left = train(node, failing).with_name("removed-node0")
    (left / "work").mkdir(parents=True)
    node.start_worker()
    look(node)
    assert left.exists()  # the server has not said yet what it needs
    node.assign()
    look(node)
    assert not left.exists() and node.dir().exists()


def record(data: Path, name: str, **reported: object) -> Path:
    """The folder of an attempt with this record."""
    folder = data / "runs" / name
    (folder / "worker").mkdir(parents=True)
    (folder / "worker/reported.json").write_text(json.dumps(reported))
    return folder


def test_only_whole_ends_in_folders_of_this_node_are_removable(tmp_path, monkeypatch):
    data, whole = tmp_path / "data", {"state": "succeeded", "has_all": True}
    whole_folder = record(data, f"{RUN}/attempts/1/node0", **whole)
    record(data, f"{RUN}/attempts/2/node0", state="succeeded")  # by an earlier version, which recorded no more
    record(data, f"{RUN}/attempts/3/node0", **whole, is_sending=True)
    record(data, f"{RUN}/attempts/4/node0", state="superseded", has_all=True)
    record(data, f"{RUN}/attempts/5/earlier-node0-1-a", **whole)
    record(data, "no run/attempts/6/node0", **whole)
    mounted = record(data, f"{RUN}/attempts/7/node0", **whole)
    record(tmp_path / "elsewhere", f"{OTHER_RUN}/attempts/1/node0", **whole)
    (data / "runs" / OTHER_RUN).symlink_to(tmp_path / "elsewhere/runs" / OTHER_RUN)
    mounts = [SimpleNamespace(mountpoint="/"), SimpleNamespace(mountpoint=str(mounted / "work/bucket"))]
    monkeypatch.setattr(ended_attempts.psutil, "disk_partitions", lambda all: mounts)
    assert [attempt.folder for attempt in removable(data)] == [whole_folder]

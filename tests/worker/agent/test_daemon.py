"""What a node does with the server's wishes, whatever happens to server, worker and processes meanwhile."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tarfile
import time
import uuid
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from dashboard.snapshots.packing import pack
from dashboard.snapshots.selection import select
from domain.masking import MASK
from domain.messages import Reason
from domain.spec import Assignment, ResumeFrom, RunSpec
from tests.dashboard.running import wait_for
from tests.worker.fake_server import FakeServer
from worker.agent.daemon import Daemon
from worker.agent.program import spawn_supervisor
from worker.launch.preparation import LocalNode
from worker.node import processes
from worker.session.answers import Adoption, DesiredState
from worker.session.failures import RequestFailed, ServerAway, ServerMistake

RUN = uuid.uuid4().hex[:10]
"""Its own in each test process: what ends a run's processes finds them by this name on the whole machine."""
WAITING = """
import pathlib, time
pathlib.Path("ready").touch()
while pathlib.Path("ready").exists(): time.sleep(0.02)
"""


class NodeUnderTest:
    """A daemon on a private directory; restart it, and only what is on disk and in processes stays."""

    def __init__(self, folder: Path) -> None:
        self.server = FakeServer()
        self.folder = folder
        self.node = LocalNode(name="n0", data_dir=folder / "data", python=sys.executable)
        self.supervisors = []
        self.adoption: Adoption | None = None
        self.start_worker()

    def start_worker(self) -> None:
        self.daemon = Daemon(self.server, self.node, self.spawn, lambda work: work())
        self.daemon.recover_attempts()

    def spawn(self, *what):
        self.supervisors.append(spawn_supervisor(self.node.data_dir)(*what))
        return self.supervisors[-1]

    def script(self, text: str, name: str = "train.py") -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def assignment(self, target: str, *, fence=1, action="run", node_rank=0, attempt=1, **more) -> Assignment:
        spec = {"target": target, "launcher": "python", "stop_grace_s": 20} | more.pop("spec", {})
        return Assignment(
            run_id=RUN, attempt=attempt, fence=fence, node_rank=node_rank, action=action,
            spec=RunSpec(**spec), devices=["cpu:0"], device_kind="cpu", **more,
        )  # fmt: skip

    def wish(self, *assignments: Assignment) -> None:
        self.daemon.set_desired_state(DesiredState(version="1", assignments=list(assignments)))

    def turn(self) -> None:
        now = time.monotonic()
        self.daemon.step(now)
        self.daemon.take_checkpoints(now)
        with suppress(ServerAway):  # the thread that does this waits, and tries again
            self.daemon.send_checkpoints(self.adoption, lambda: True)

    def until(self, condition, limit_s=180.0):
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            self.turn()
            if result := condition():
                return result
            time.sleep(0.01)
        raise AssertionError(f"not within {limit_s} s; reported: {self.server.states()}")

    def until_settled(self):
        self.until(lambda: not self.daemon.attempts)
        return self.server.end()

    def dir(self, attempt=1, node_rank=0) -> Path:
        return self.node.data_dir / f"runs/{RUN}/attempts/{attempt}/node{node_rank}"

    def supervisor(self, attempt=1):
        try:
            return json.loads((self.dir(attempt) / "supervisor.json").read_text())
        except OSError:
            return None

    def until_ready(self, attempt=1):
        self.until(lambda: (self.dir(attempt) / "work/ready").exists())
        self.until(lambda: "running" in self.server.states())

    def let_end(self, attempt=1):
        (self.dir(attempt) / "work/ready").unlink()

    def clean_up(self):
        for supervisor in self.supervisors:
            supervisor.kill()
            supervisor.wait()
        for attempt in (1, 2):
            processes.kill_all(lambda number=attempt: processes.of_attempt(RUN, number), 10)


@pytest.fixture
def node(tmp_path):
    under_test = NodeUnderTest(tmp_path)
    yield under_test
    under_test.clean_up()


def events(steps=range(5), pause_s=0.0):
    """A script that writes event files as torch's SummaryWriter does, without importing torch."""
    return f"""
import time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter("runs/a")
for step in {list(steps)!r}:
    value = Summary.Value(tag="train/loss", simple_value=step * 0.5)
    writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
    writer.flush()
    time.sleep({pause_s})
writer.close()
"""


def checkpoint(name, size=10):
    """A script that saves what has the form of a torch checkpoint."""
    return f"""
import os, zipfile
with zipfile.ZipFile("{name}", "w") as archive:
    archive.writestr("data", os.urandom({size}))
"""


def test_a_run_is_started_followed_and_reported(node):
    node.wish(node.assignment(node.script("import sys\nprint('hello')\nprint('oh', file=sys.stderr)\n")))
    end = node.until_settled()
    assert node.server.states() == ["starting", "running", "succeeded"]
    assert node.server.text("logs/rank0.out") == "hello\n"
    assert node.server.text("logs/rank0.err") == "oh\n"
    assert (end.exit_code, end.reason) == (0, None)
    first = node.server.reports[0][1]
    assert first.argv[-1] == node.script("import sys\nprint('hello')\nprint('oh', file=sys.stderr)\n")
    assert first.env["RANKZERO_RUN_ID"] == RUN and first.pid == node.supervisor()["pid"]


def test_points_and_event_files_are_complete_before_the_end_is_reported(node):
    node.wish(node.assignment(node.script(events(steps=range(200)))))
    end = node.until(lambda: node.server.end())
    assert end.state == "succeeded", end
    assert [point[:2] for point in node.server.series["train/loss"]] == [(n, n * 0.5) for n in range(200)]
    (path,) = {name for _, name, _ in node.server.files if "tfevents" in name}
    stored = (node.dir() / path).read_bytes()
    assert next(data for (_, name, _), data in node.server.files.items() if name == path) == stored


def test_a_failing_script_is_reported_with_its_last_words(node):
    node.wish(node.assignment(node.script("raise ValueError('no such luck')")))
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.SCRIPT_ERROR)
    assert "no such luck" in end.message and end.error.line == 1


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"target": "/nowhere/train.py"}, "The script /nowhere/train.py does not exist on node n0."),
        ({"target": "/nowhere", "entry": "a.py"}, "The folder /nowhere does not exist on node n0."),
        (
            {"target": "image_classifier", "python": "/nowhere/python"},
            "The interpreter /nowhere/python does not",
        ),
        (
            {"target": "image_classifier", "workdir": "/nowhere"},
            "The working directory /nowhere does not exist",
        ),
        (
            {"target": "image_classifier", "links": {"data": "/nowhere"}},
            "/nowhere, to be linked as data, does not",
        ),
    ],
)
def test_what_does_not_exist_on_the_node_is_said_in_a_sentence(node, spec, sentence):
    node.wish(node.assignment(spec.pop("target"), spec=spec))
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.SCRIPT_MISSING)
    assert end.message.startswith(sentence)


def test_stop_lets_the_script_save(node):
    script = node.script(
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(0)))\n"
        + WAITING
    )
    node.wish(node.assignment(script))
    node.until_ready()
    node.wish(node.assignment(script, action="stop"))
    assert node.until_settled().state == "stopped"
    assert node.server.states() == ["starting", "running", "stopping", "stopped"]
    assert node.server.text("logs/rank0.out") == "saved\n"


def test_stop_before_the_start_starts_nothing(node):
    node.wish(node.assignment(node.script(WAITING), action="stop"))
    assert node.until_settled().state == "stopped"
    assert not (node.dir() / "launch.json").exists()


def test_a_repeated_wish_starts_nothing_twice(node):
    wish = node.assignment(node.script("print('once')\n" + WAITING))
    node.wish(wish)
    node.until_ready()
    node.wish(wish)
    node.turn()
    node.let_end()
    node.until_settled()
    node.wish(wish)  # a late copy of the list
    node.turn()
    node.until_settled()
    assert node.server.text("logs/rank0.out") == "once\n"
    assert node.server.end().state == "succeeded"


def test_a_worker_that_was_killed_finds_its_training_again(node):
    node.wish(node.assignment(node.script("print('once')\n" + WAITING)))
    node.until_ready()
    pid = node.supervisor()["launcher_pid"]
    for _ in range(3):
        node.start_worker()
        node.turn()
    assert node.supervisor()["launcher_pid"] == pid
    node.let_end()
    assert node.until_settled().state == "succeeded"
    assert node.server.text("logs/rank0.out") == "once\n"


def test_an_end_nobody_saw_is_reported_by_the_next_worker(node):
    node.wish(node.assignment(node.script("print('bye')\n" + WAITING)))
    node.until_ready()
    node.let_end()
    deadline = time.monotonic() + 30
    while node.supervisor()["state"] != "ended" and time.monotonic() < deadline:
        time.sleep(0.01)
    node.start_worker()
    assert node.until_settled().state == "succeeded"
    assert node.server.text("logs/rank0.out") == "bye\n"


def test_a_restarted_worker_sends_the_points_of_files_it_has_mirrored_already(node):
    node.wish(node.assignment(node.script(events())))
    node.until_settled()
    (node.dir() / "worker/reported.json").unlink()
    node.server.points_offsets.clear()
    node.server.series.clear()
    node.start_worker()
    (attempt,) = node.daemon.attempts
    attempt.act(time.monotonic())
    node.daemon.take_checkpoints(time.monotonic())  # the other thread was faster: all else is done
    node.daemon.step(time.monotonic())
    assert node.daemon.attempts == []
    assert len(node.server.series["train/loss"]) == 5


def test_what_was_acknowledged_is_not_reported_again(node):
    node.wish(node.assignment(node.script("pass")))
    node.until_settled()
    told = len(node.server.reports)
    node.start_worker()
    node.turn()
    assert node.daemon.attempts == [] and len(node.server.reports) == told


def test_training_goes_on_while_the_server_is_away(node):
    script = node.script(events() + "print('trained on')\n" + WAITING)
    node.wish(node.assignment(script))
    node.until(lambda: node.supervisor() is not None)
    node.server.is_away = True
    node.until(lambda: (node.dir() / "work/ready").exists())
    node.let_end()
    node.until(lambda: node.supervisor()["state"] == "ended")
    assert node.server.end() is None
    node.server.is_away = False
    assert node.until_settled().state == "succeeded"
    assert len(node.server.series["train/loss"]) == 5
    assert node.server.text("logs/rank0.out") == "trained on\n"


def test_lost_replies_change_nothing(node):
    node.server.loses_replies = True
    text = "for n in range(20): print(n)\n" + checkpoint("step_7.pt")
    node.wish(node.assignment(node.script(events(steps=range(100)) + text)))
    node.until_settled()
    assert [point[0] for point in node.server.series["train/loss"]] == list(range(100))
    assert node.server.text("logs/rank0.out") == "".join(f"{n}\n" for n in range(20))
    assert [(one["path"], one["complete"]) for one in node.server.checkpoints] == [("work/step_7.pt", True)]


def test_a_superseded_attempt_is_ended_and_forgotten(node):
    node.wish(node.assignment(node.script(WAITING)))
    node.until_ready()
    node.server.superseded.add(1)
    node.wish()
    node.until(lambda: not node.daemon.attempts)
    assert processes.of_attempt(RUN, 1) == []
    assert node.server.end() is None
    node.start_worker()
    assert node.daemon.attempts == []


def test_an_attempt_given_up_with_its_node_is_ended_and_its_end_is_told(node):
    wish = node.assignment(node.script(WAITING))
    node.wish(wish)
    node.until_ready()
    node.server.given_up.add(1)
    node.wish(wish.model_copy(update={"action": "stop", "grace_s": 0.5}))
    node.until(lambda: not node.daemon.attempts)
    assert processes.of_attempt(RUN, 1) == []
    assert node.server.end() is not None


def test_a_list_that_is_late_ends_nothing(node):
    wish = node.assignment(node.script(WAITING))
    node.wish(wish)
    node.until_ready()
    node.wish()  # written down before the run was placed here, delivered after it
    for _ in range(5):
        node.turn()
    assert node.supervisor()["state"] == "running" and node.supervisor()["stop_requested_at"] is None
    node.let_end()
    assert node.until_settled().state == "succeeded"


def test_a_killed_supervisor_fails_its_attempt_and_leaves_no_process(node):
    node.wish(node.assignment(node.script(WAITING)))
    node.until_ready()
    os.kill(node.supervisor()["pid"], signal.SIGKILL)
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.KILLED)
    assert "supervisor of the attempt was killed" in end.message
    assert processes.of_attempt(RUN, 1) == []


def test_a_supervisor_killed_while_the_worker_was_away_is_noticed_by_the_next(node):
    script = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITING
    node.wish(node.assignment(node.script(script)))
    node.until_ready()
    os.kill(node.supervisor()["pid"], signal.SIGKILL)
    node.start_worker()
    assert node.until_settled().reason == Reason.KILLED
    assert processes.of_attempt(RUN, 1) == []


def test_a_machine_that_restarted_has_lost_its_attempts(node):
    node.wish(node.assignment(node.script(WAITING)))
    node.until_ready()
    state = node.supervisor()
    os.kill(state["pid"], signal.SIGKILL)
    (node.dir() / "supervisor.json").write_text(json.dumps(state | {"boot_id": "an earlier one"}))
    node.start_worker()
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.NODE_LOST)


def test_a_training_whose_state_file_was_deleted_is_followed_by_the_next_worker(node):
    node.wish(node.assignment(node.script(WAITING)))
    node.until_ready()
    before = node.supervisor()
    (node.dir() / "supervisor.json").unlink()
    node.start_worker()
    node.until(lambda: node.supervisor() == before)
    for _ in range(10):
        node.turn()
    assert len(node.supervisors) == 1
    node.let_end()
    assert node.until_settled().state == "succeeded"


def test_a_supervisor_that_cannot_write_its_state_is_followed_and_told_to_stop(node):
    wish = node.assignment(node.script(WAITING))
    node.wish(wish)
    node.until_ready()
    (node.dir() / "supervisor.tmp").mkdir()  # opening it for writing fails as on a full disk
    for name in ("supervisor.json", *(spare.name for spare in node.dir().glob("supervisor.spare*"))):
        (node.dir() / name).unlink()
    node.start_worker()
    for _ in range(10):
        node.turn()
    assert len(node.supervisors) == 1 and node.supervisors[0].poll() is None
    assert node.server.end() is None and node.daemon.attempts[0].is_over is False
    node.wish(wish.model_copy(update={"action": "stop"}))
    node.until(lambda: not processes.of_attempt(RUN, 1))
    for _ in range(5):
        node.turn()
    assert node.server.end() is None  # its last word is not written yet
    (node.dir() / "supervisor.tmp").rmdir()
    assert node.until_settled().state == "stopped"


def test_what_lives_without_supervisor_and_state_file_is_ended_before_the_end_is_told(node):
    stubborn = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('begun', flush=True)\n"
    node.wish(node.assignment(node.script(stubborn + WAITING)))
    node.until_ready()
    os.kill(node.supervisor()["pid"], signal.SIGKILL)
    node.supervisors[0].wait()
    (node.dir() / "supervisor.json").unlink()
    assert processes.of_attempt(RUN, 1)
    node.start_worker()
    node.turn()
    assert node.server.end() is None and processes.of_attempt(RUN, 1)
    end = node.until_settled()
    assert processes.of_attempt(RUN, 1) == [] and len(node.supervisors) == 1
    assert (end.state, end.reason) == ("failed", Reason.KILLED) and "supervisor.json" in end.message
    assert node.server.text("logs/rank0.out") == "begun\n"


def test_what_has_run_already_is_not_started_again_without_its_state_file(node):
    node.wish(node.assignment(node.script("print('once')\n" + WAITING)))
    node.until_ready()
    node.let_end()
    assert node.supervisors[0].wait(60) == 0  # no turn since: nobody has told of its end
    (node.dir() / "supervisor.json").unlink()
    node.start_worker()
    assert node.until_settled().state == "failed"
    assert len(node.supervisors) == 1
    assert node.server.text("logs/rank0.out") == "once\n"


def test_a_directory_deleted_in_mid_run_ends_the_attempt_with_a_sentence(node):
    node.wish(node.assignment(node.script(WAITING), spec={"stop_grace_s": 1}))
    node.until_ready()
    shutil.rmtree(node.dir())
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.KILLED) and "directory was deleted" in end.message
    assert node.supervisors[0].wait(60) == 0 and processes.of_attempt(RUN, 1) == []


def test_shutting_down_stops_every_run_and_says_why(node):
    node.wish(node.assignment(node.script(WAITING)))
    node.until_ready()
    node.daemon.shut_down()
    end = node.until_settled()
    assert (end.state, end.message) == ("stopped", "the worker was shut down")


@pytest.mark.parametrize("dies_first", [False, True], ids=["stopped", "killed by Slurm before it is stopped"])
def test_why_slurm_ends_a_job_is_left_to_slurm(node, dies_first):
    node.wish(node.assignment(node.script(WAITING)))
    node.until_ready()
    if dies_first:
        supervisor = node.supervisors[0].pid
        processes.kill_all(lambda: [p for p in processes.of_attempt(RUN, 1) if p.pid != supervisor], 10)
        wait_for(lambda: node.supervisor()["state"] == "ended", "the supervisor to notice", 60)
    node.daemon.shut_down(cause="slurm")
    assert node.until_settled() is None


def test_shutting_down_in_a_hurry_kills(node):
    node.wish(node.assignment(node.script("import signal\nsignal.signal(15, signal.SIG_IGN)\n" + WAITING)))
    node.until_ready()
    node.daemon.shut_down()
    node.until(lambda: node.supervisor()["state"] == "stopping")
    node.daemon.shut_down(0)
    assert node.until_settled().state == "stopped"


def test_a_checkpoint_is_sent_whole(node):
    node.wish(node.assignment(node.script(checkpoint("ckpt_12.pt", size=9_000_000))))
    node.until_settled()
    (found,) = node.server.checkpoints
    assert (found["path"], found["step"], found["complete"]) == ("work/ckpt_12.pt", 12, True)
    assert found["data"] == (node.dir() / "work/ckpt_12.pt").read_bytes()
    assert [path.name for path in (node.dir() / "outbox").iterdir()] == ["taken.json"]


def test_a_checkpoint_on_a_shared_disk_is_not_sent_but_linked(node, tmp_path):
    node.server.adopt_directory = tmp_path
    node.adoption = Adoption(directory=str(tmp_path), proof_file="unused", proof="unused")
    node.wish(node.assignment(node.script(checkpoint("a.pt"))))
    node.until_settled()
    (found,) = node.server.checkpoints
    assert found["complete"] and found["adopted"] == "adopted-0"
    assert (tmp_path / "adopted-0").stat().st_nlink == 1


def test_a_mistake_of_ours_before_the_start_ends_the_attempt_with_a_sentence(node, monkeypatch):
    def broken(*_):
        raise NameError("name 'nobody' is not defined")

    monkeypatch.setattr("worker.attempt.attempt.prepare", broken)
    node.wish(node.assignment(node.script("")))
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.LAUNCH_FAILED)
    assert "name 'nobody' is not defined" in end.message


def test_a_half_written_checkpoint_is_not_sent_but_told_of(node):
    text = (
        "import os, torch\ntorch.save({'w': 1}, 'a.pt')\nos.truncate('a.pt', os.path.getsize('a.pt') - 9)\n"
    )
    assignment = node.assignment(node.script(text))
    node.wish(assignment)
    assert node.until_settled().state == "succeeded"
    assert [one for one in node.server.checkpoints if one["complete"]] == []
    (finding,) = node.server.told[assignment.fence]
    assert finding.kind == "checkpoint not whole"
    assert "work/a.pt" in finding.evidence


def stored(node, name, data):
    """A checkpoint on the server, as an assignment names it."""
    node.server.downloads[5] = data
    digest = hashlib.sha256(data).hexdigest()
    return ResumeFrom(
        checkpoint_id=5, name=name, sha256=digest, size_bytes=len(data), download_path="/unused"
    )


@pytest.mark.parametrize("name", ["last.pt", "checkpoint.pth.tar"])
def test_a_run_resumes_from_a_checkpoint_that_was_fetched_first(node, name):
    script = node.script(
        "import os, sys\nprint(open(sys.argv[1]).read(), os.environ['RANKZERO_RESUME'] == sys.argv[1])\n"
    )
    source = stored(node, f"work/ckpt/{name}", b"the weights")
    node.wish(node.assignment(script, spec={"args": ["{resume}"]}, resume_from=source))
    node.until_settled()
    assert node.server.text("logs/rank0.out") == "the weights True\n"
    assert (node.dir() / "resume" / name).exists()


def test_a_run_resumes_from_a_folder_that_came_as_an_archive(node, tmp_path):
    (tmp_path / "step_8").mkdir()
    (tmp_path / "step_8/.metadata").write_text("all of it")
    with tarfile.open(tmp_path / "sent.tar", "w", format=tarfile.GNU_FORMAT) as archive:
        archive.add(tmp_path / "step_8", "step_8")
    source = stored(node, "work/step_8.tar", (tmp_path / "sent.tar").read_bytes())
    script = node.script("import os\nprint(open(os.environ['RANKZERO_RESUME'] + '/.metadata').read())\n")
    node.wish(node.assignment(script, resume_from=source))
    node.until_settled()
    assert node.server.text("logs/rank0.out") == "all of it\n"
    assert [path.name for path in (node.dir() / "resume").iterdir()] == ["step_8"]


def test_an_archive_that_is_none_fails_the_resume(node):
    source = stored(node, "work/step_8.tar", b"no archive" * 100)
    node.wish(node.assignment(node.script("pass"), resume_from=source))
    assert node.until_settled().reason == Reason.RESUME_FAILED


def test_a_checkpoint_that_cannot_be_fetched_fails_the_resume(node):
    source = ResumeFrom(checkpoint_id=5, name="a.pt", sha256="0" * 64, size_bytes=1, download_path="/unused")
    node.wish(node.assignment(node.script("pass"), resume_from=source))
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.RESUME_FAILED)


def kept(node, folder):
    """The hash of a folder's code, as the server keeps it."""
    packed = pack(select(folder), node.folder / f"{folder.name}.tar", 10**9)
    node.server.snapshots[packed.sha256] = packed.path.read_bytes()
    return packed.sha256


def code_of(tmp_path):
    code = tmp_path / "code"
    (code / "data").mkdir(parents=True)
    (code / "data" / ".gitkeep").touch()
    (code / "settings.py").write_text("VALUE = 3\n")
    (code / "events.out.tfevents.1700000000.old").write_text("of another run")
    with zipfile.ZipFile(code / "pretrained.pt", "w") as archive:
        archive.writestr("data", "weights")
    (code / "train.py").write_text(
        "import settings, os\nprint(settings.VALUE, *sorted(os.listdir()), os.path.islink('data'))\n"
    )
    return code


def test_a_run_works_in_its_own_copy_of_the_code_it_was_launched_with(node, tmp_path):
    code = code_of(tmp_path)
    spec = {"entry": "train.py", "links": {"data": "/tmp"}, "snapshot": kept(node, code)}
    (code / "settings.py").write_text("VALUE = 4\n")  # changed after the launch
    node.wish(node.assignment(str(code), spec=spec))
    node.until_settled()
    shown = node.server.text("logs/rank0.out").replace("__pycache__ ", "")
    assert shown == "3 data pretrained.pt settings.py train.py True\n"
    assert node.server.checkpoints == []  # what the code brings along is not the run's own
    assert (tmp_path / "code/data/.gitkeep").exists()


def test_a_second_attempt_finds_the_code_on_the_node(node, tmp_path):
    code = code_of(tmp_path)
    spec = {"entry": "train.py", "snapshot": kept(node, code)}
    node.wish(node.assignment(str(code), spec=spec))
    node.until_settled()
    node.server.snapshots.clear()
    node.wish(node.assignment(str(code), spec=spec, fence=2, attempt=2))
    node.until(lambda: node.server.end(2))
    assert node.server.end(2).state == "succeeded"


def test_code_that_cannot_be_had_fails_the_run_in_a_sentence(node):
    node.wish(node.assignment("/code", spec={"entry": "train.py", "snapshot": "0" * 64}))
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.LAUNCH_FAILED)
    assert end.message == "The code (snapshot 000000000000) could not be fetched: there is no such snapshot"


def test_a_run_in_place_shows_only_what_it_made_itself(node, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    (place / "events.out.tfevents.1700000000.old").write_text("of another run")
    with zipfile.ZipFile(place / "old.pt", "w") as archive:
        archive.writestr("data", "weights")
    script = node.script(events() + checkpoint("new.pt"))
    node.wish(node.assignment(script, spec={"workdir": str(place)}))
    node.until_settled()
    assert [one["path"] for one in node.server.checkpoints] == ["workdir/new.pt"]
    assert [name for _, name, _ in node.server.files if "old" in name] == []
    assert list(node.server.series) == ["train/loss"]


def test_secrets_stay_on_the_node(node, monkeypatch):
    monkeypatch.setenv("RANKZERO_TOKEN", "join")
    script = node.script("import os\nprint(os.environ.get('RANKZERO_TOKEN'), os.environ['WANDB_API_KEY'])\n")
    node.wish(node.assignment(script, spec={"env": {"WANDB_API_KEY": "hidden"}}))
    node.until_settled()
    assert node.server.text("logs/rank0.out") == "None hidden\n"
    assert node.server.reports[0][1].env["WANDB_API_KEY"] == MASK
    assert (node.dir() / "launch.json").stat().st_mode & 0o077 == 0


def test_nodes_wait_for_the_port_that_rank_0s_node_chooses(node):
    started = []
    node.daemon._spawn = lambda folder, *_: started.append(order_of(folder)) or Gone()
    spec = {"nodes": 2, "launcher": "torchrun", "gpus_per_node": 1}
    script = node.script("pass")
    node.wish(node.assignment(script, node_rank=1, spec=spec))
    for _ in range(3):
        node.turn()
    assert started == [] and not any(report.argv for _, report in node.server.reports)
    endpoint = {"master_addr": "10.0.0.1", "master_port": 4711}
    node.wish(node.assignment(script, node_rank=1, spec=spec, **endpoint))
    node.until(lambda: started)
    assert {"--node-rank=1", "--master-addr=10.0.0.1", "--master-port=4711"} <= set(started[0]["argv"])


def test_rank_0s_node_reports_its_port_before_it_starts(node):
    spec = {"nodes": 2, "launcher": "torchrun", "gpus_per_node": 1}
    started = []
    node.daemon._spawn = lambda folder, *_: started.append(order_of(folder)) or Gone()
    wish = node.assignment(node.script("pass"), spec=spec)
    node.wish(wish)
    node.until(lambda: started)
    report = node.server.reports[0][1]
    assert report.state == "starting" and report.master_port
    assert f"--master-port={report.master_port}" in started[0]["argv"]
    assert "--master-addr=127.0.0.1" in started[0]["argv"]
    node.wish(wish)  # a list from before the report
    node.turn()
    assert {r.master_port for _, r in node.server.reports if r.master_port} == {report.master_port}
    node.until_settled()
    assert node.server.end().reason == Reason.LAUNCH_FAILED


def order_of(folder):
    return json.loads((folder / "launch.json").read_text())


class Gone:
    """A supervisor that ended without a word."""

    pid = 0

    def poll(self):
        return 1


def test_two_attempts_at_once_do_not_disturb_each_other(node):
    first, second = node.script("print('first')", "a.py"), node.script("raise SystemExit(3)", "b.py")
    node.wish(node.assignment(first, fence=1), node.assignment(second, fence=2, attempt=2))
    node.until(lambda: not node.daemon.attempts)
    assert (node.server.end(1).state, node.server.end(2).state) == ("succeeded", "failed")
    assert node.server.end(2).exit_code == 3


TROUBLES = [
    ServerMistake("The dashboard made a mistake"),
    RequestFailed("the connection broke off"),
    ValueError("a mistake of ours"),
]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: type(trouble).__name__)
def test_what_fails_of_one_attempt_holds_up_no_other(node, trouble):
    node.server.fails_at_points[1] = trouble
    first = node.assignment(node.script(events() + WAITING, "a.py"), fence=1)
    second = node.assignment(node.script(events(), "b.py"), fence=2, attempt=2)
    node.wish(first, second)
    node.until(lambda: node.server.end(2))
    assert node.server.end(2).state == "succeeded" and len(node.server.series["train/loss"]) == 5
    node.until(lambda: (node.dir(1) / "work/ready").exists())
    node.wish(first.model_copy(update={"action": "stop"}))
    node.until(lambda: not processes.of_attempt(RUN, 1))
    assert node.server.end(1) is None
    node.server.fails_at_points.clear()
    assert node.until(lambda: node.server.end(1)).state == "stopped"
    assert len(node.server.series["train/loss"]) == 10


def test_logs_arrive_while_the_server_makes_mistakes_with_points(node):
    node.server.fails_at_points[1] = ServerMistake("The dashboard made a mistake")
    node.wish(node.assignment(node.script(events() + "print('on and on', flush=True)\n" + WAITING)))
    node.until(lambda: node.server.text("logs/rank0.out") == "on and on\n")


def test_a_server_that_is_away_is_asked_by_one_attempt_for_all(node):
    wishes = [
        node.assignment(node.script(events() + WAITING), fence=fence, attempt=fence) for fence in (1, 2)
    ]
    node.server.is_away = True
    node.wish(*wishes)
    node.until(lambda: all(processes.of_attempt(RUN, fence) for fence in (1, 2)))
    for _ in range(50):
        calls = node.server.calls
        node.daemon.step(time.monotonic())
        assert node.server.calls - calls <= 1


def test_points_arrive_once_whatever_is_killed(node):
    """The worker is replaced at random moments while a script writes and the server comes and goes."""
    chance = random.Random(7)
    node.wish(node.assignment(node.script(events(steps=range(400), pause_s=0.005))))
    node.server.loses_replies = True
    for _ in range(12):
        for _ in range(chance.randrange(1, 8)):
            node.turn()
            time.sleep(0.03)
        node.server.is_away = chance.random() < 0.3
        node.start_worker()
    node.server.is_away = False
    assert node.until_settled().state == "succeeded"
    assert [point[0] for point in node.server.series["train/loss"]] == list(range(400))


def test_what_another_worker_began_as_this_node_is_ended_and_not_started_a_second_time(node):
    """A data directory that was lost, or an identity that was copied without it."""
    wish = node.assignment(node.script(WAITING))
    node.wish(wish)
    node.until_ready()
    node.node = dataclasses.replace(node.node, data_dir=node.folder / "another")
    node.start_worker()
    node.wish(wish.model_copy(update={"is_known": True}))
    end = node.until(node.server.end)
    assert (end.state, end.reason) == ("failed", Reason.NODE_LOST)
    assert "Node n0 returned without the run" in end.message
    assert processes.of_attempt(RUN, 1) == []
    assert len(node.supervisors) == 1

"""A node's work on checkpoints: fetched, done in the run's Python, sent, ended, begun anew by the next worker."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from domain.assignments import ResumeFrom
from domain.checkpoint_use.tasks import CheckpointTaskReport, DesiredCheckpointTask, PushDetails, TaskKind
from domain.spec import RunSpec
from tests.worker.node_under_test import RUN
from tests.worker.virtual_node import VirtualNode
from worker.checkpoint_tasks.program import PUSHING, TaskCommand, TaskFailed
from worker.session.answers import DesiredState
from worker.session.failures import TooLarge

WEIGHTS = b"weights of a training"
TOKEN = "hf_a-token-of-somebody"


class FakeProgram:
    """Does in place of the program in the run's Python what a test says, and remembers the command."""

    def __init__(self, node: VirtualNode, act: Callable[[Path], object]) -> None:
        self.commands: list[TaskCommand] = []
        self.may_continue: Callable[[], bool] = lambda: True
        self._act = act
        node.run_program = self.run

    def run(
        self, command: TaskCommand, folder: Path, on_progress: Any, may_continue: Any, clock: Any
    ) -> dict[str, Any]:
        self.commands.append(command)
        self.may_continue = may_continue
        on_progress(1, 2, "reads tensors")
        result = self._act(Path(command.arguments[2] if command.arguments[0] == "merge" else folder))
        return result if isinstance(result, dict) else {"tensors": 1}


def write(target: Path) -> None:
    """What a merge writes: tensors, and what the model needs besides."""
    target.mkdir(parents=True)
    (target / "model.safetensors").write_bytes(b"merged")
    (target / "config.json").write_text("{}")


def archive(**files: bytes) -> bytes:
    """A folder of shards as it is stored."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"step-5/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return content.getvalue()


def asked(
    node: VirtualNode, content: bytes = WEIGHTS, name: str = "work/last.pt", **more: Any
) -> DesiredCheckpointTask:
    """A task about a checkpoint that the server has."""
    node.server.downloads[7] = content
    source = ResumeFrom(
        checkpoint_id=7, name=name, sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content),
        download_path="/api/worker/checkpoints/7/file",
    )  # fmt: skip
    values = {"task_id": 1, "kind": TaskKind.MERGE, "run_id": RUN, "attempt": 1, "fence": 3, "node_rank": 0}
    return DesiredCheckpointTask(**values | {"spec": RunSpec(target="/train.py"), "sources": [source]} | more)


def ask(node: VirtualNode, *tasks: DesiredCheckpointTask) -> None:
    desired = DesiredState(version="1", assignments=[], checkpoint_tasks=list(tasks))
    node.trainings.set_desired_state(desired, may_start=True)


def end_of(node: VirtualNode, task_id: int = 1) -> CheckpointTaskReport:
    """The last report on a task, once it has ended."""

    def end() -> CheckpointTaskReport | None:
        reports = node.server.checkpoint_tasks.get(task_id, [])
        return reports[-1] if reports and reports[-1].state not in ("waiting", "running") else None

    return node.until(end)


def is_tidy(node: VirtualNode) -> bool:
    return not any((node.node.data_dir / "node/checkpoint-tasks").iterdir())


@pytest.fixture
def node(virtual_node: VirtualNode) -> VirtualNode:
    return virtual_node


def test_a_file_is_merged_into_a_file_and_sent_as_the_result_of_its_task(node: VirtualNode) -> None:
    program = FakeProgram(node, write)
    ask(node, asked(node))
    end = end_of(node)
    assert (end.state, end.merged_id, end.result) == ("succeeded", 0, {"tensors": 1})
    (merged,) = node.server.checkpoints
    assert (merged["path"], merged["data"], merged["task_id"]) == ("merged/last.safetensors", b"merged", 1)
    assert merged["complete"] and merged["fence"] == 3 and is_tidy(node)
    (command,) = program.commands
    assert command.python == node.node.python
    assert command.arguments[0] == "merge" and command.arguments[3:5] == ["--format", "safetensors"]
    assert [report.doing for report in node.server.checkpoint_tasks[1][:1]] == ["begins"]


@pytest.mark.parametrize(("format", "name"), [("safetensors", "step-5"), ("hf", "step-5-hf")])
def test_a_folder_is_unpacked_for_the_program_and_merged_into_a_folder(
    node: VirtualNode, format: str, name: str
) -> None:
    seen = []

    def act(target: Path) -> None:
        seen.extend(sorted(path.name for path in (target.parent.parent / "source0/step-5").iterdir()))
        write(target)

    FakeProgram(node, act)
    ask(node, asked(node, archive(a=b"1", b=b"2"), "work/out/step-5.tar", format=format))
    assert end_of(node).state == "succeeded" and seen == ["a", "b"]
    (merged,) = node.server.checkpoints
    assert merged["path"] == f"merged/out/{name}.tar"
    with tarfile.open(fileobj=io.BytesIO(merged["data"])) as tar:
        assert sorted(tar.getnames()) == [name, f"{name}/config.json", f"{name}/model.safetensors"]
        assert all(member.mtime == 0 and not member.uname for member in tar)


def test_what_is_only_read_is_not_sent(node: VirtualNode) -> None:
    program = FakeProgram(node, lambda folder: {"tensors": []})
    ask(node, asked(node, kind=TaskKind.SHOW))
    assert end_of(node).result == {"tensors": []} and node.server.checkpoints == []
    assert program.commands[0].arguments[0] == "show" and len(program.commands[0].arguments) == 2


def test_a_push_is_done_by_the_workers_own_python_with_secrets_by_standard_input_alone(node: VirtualNode) -> None:
    node.server.push = PushDetails(secrets={"HF_TOKEN": TOKEN}, card={"text": "# digits"}, message="Add step 5")
    left: list[str] = []

    def act(folder: Path) -> dict[str, Any]:
        left.extend(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())
        return {"url": "https://hub/lab/digits"}

    program = FakeProgram(node, act)
    ask(node, asked(node, name="merged/last.safetensors", kind=TaskKind.PUSH, target="hf:lab/digits"))
    assert end_of(node).result == {"url": "https://hub/lab/digits"} and node.server.checkpoints == []
    (command,) = program.commands
    assert (command.python, command.module) == (sys.executable, PUSHING) and len(command.arguments) == 1
    assert json.loads(command.request) == {
        "name": "model.safetensors", "target": "hf:lab/digits", "is_private": True, "secrets": {"HF_TOKEN": TOKEN},
        "card": {"text": "# digits"}, "message": "Add step 5",
    }  # fmt: skip
    assert not any(TOKEN in text for text in (*left, *command.arguments, *command.env.values())) and is_tidy(node)


def test_a_push_whose_secret_is_gone_says_so(node: VirtualNode) -> None:
    FakeProgram(node, lambda _: {})
    ask(node, asked(node, kind=TaskKind.PUSH, target="hf:lab/digits"))
    assert "The push was refused: The secret HF_TOKEN of ana was removed" in (end_of(node).message or "")


def test_a_refusal_is_reported_as_the_program_words_it(node: VirtualNode) -> None:
    def refuse(_: Path) -> None:
        raise TaskFailed("The checkpoint holds no tensors: name one that does.")

    FakeProgram(node, refuse)
    ask(node, asked(node))
    assert end_of(node).message == "The checkpoint holds no tensors: name one that does." and is_tidy(node)


def test_a_result_that_is_refused_ends_the_task_with_the_reason(
    node: VirtualNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = node.server.report_checkpoint_task

    def refuse_results(task: DesiredCheckpointTask, report: CheckpointTaskReport) -> None:
        if report.result is not None:
            raise TooLarge("a body of 1,800,000 bytes was answered 413, and not by the server")
        take(task, report)

    monkeypatch.setattr(node.server, "report_checkpoint_task", refuse_results)
    FakeProgram(node, lambda _: {"tensors": []})
    ask(node, asked(node, kind=TaskKind.SHOW))
    assert end_of(node).state == "failed" and "did not take the result" in (end_of(node).message or "")


def test_a_failure_that_nobody_foresaw_ends_the_task_and_not_the_loop(node: VirtualNode) -> None:
    FakeProgram(node, lambda _: 1 / 0)
    ask(node, asked(node), asked(node, task_id=2))
    assert "ZeroDivisionError" in end_of(node).message
    assert end_of(node, 2).state == "failed" and is_tidy(node)


def test_too_little_space_is_said_before_anything_is_fetched(
    node: VirtualNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(node.folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10))
    program = FakeProgram(node, write)
    ask(node, asked(node))
    end = end_of(node)
    assert end.state == "failed" and "free some space" in end.message and program.commands == []


def test_a_cancelled_task_ends_and_leaves_nothing(node: VirtualNode) -> None:
    def act(target: Path) -> None:
        write(target)
        ask(node, asked(node, is_cancelled=True))
        raise TaskFailed("ended")

    FakeProgram(node, act)
    ask(node, asked(node))
    assert end_of(node).state == "cancelled"
    assert node.server.checkpoints == [] and is_tidy(node)


def test_a_task_that_is_gone_is_dropped_without_a_report(node: VirtualNode) -> None:
    def act(target: Path) -> None:
        write(target)
        ask(node)

    program = FakeProgram(node, act)
    ask(node, asked(node))
    node.until(lambda: program.commands and is_tidy(node))
    assert [report.state for report in node.server.checkpoint_tasks[1]] == ["running"]


def test_an_absent_server_is_waited_for_until_the_result_has_arrived(node: VirtualNode) -> None:
    def act(target: Path) -> None:
        write(target)
        node.server.is_away = True

    FakeProgram(node, act)
    ask(node, asked(node))
    node.until(lambda: node.server.is_away)
    node.time.advance(120.0)
    assert node.server.checkpoints == []
    node.server.is_away = False
    assert end_of(node).state == "succeeded" and node.server.checkpoints[0]["complete"]


def test_the_next_worker_removes_what_was_left_and_begins_anew(node: VirtualNode) -> None:
    left = node.node.data_dir / "node/checkpoint-tasks/1/merged"
    node.end_worker()
    left.mkdir(parents=True)
    (left / "part").write_bytes(b"half")
    FakeProgram(node, write)
    node.start_worker()
    node.until(lambda: not left.exists())
    ask(node, asked(node))
    assert end_of(node).state == "succeeded" and is_tidy(node)

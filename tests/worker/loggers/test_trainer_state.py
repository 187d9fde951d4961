"""The history of Transformers' Trainer arrives as points exactly once, where no logger has the same values."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from domain.messages import PointBatch
from tests.cli.importers.logged_runs import WALL
from tests.worker.loggers.logging_node import Node
from worker.loggers.stores import SETTINGS_FILE
from worker.loggers.trainer_state import FILE
from worker.node.run_files import LOGGERS

Entry = dict[str, Any]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def train(step: int) -> Entry:
    return {
        "epoch": step / 10,
        "grad_norm": float("nan") if step == 5 else 1.0,
        "loss": 1 / step,
        "step": step,
    }


def save(node: Node, name: str, history: list[Entry], wall: float) -> Path:
    """Write the state of a checkpoint, or of the output directory, as the Trainer does."""
    file = node.work / "output" / name / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    state = {
        "best_metric": None,
        "global_step": 5,
        "log_history": history,
        "max_steps": 60,
        "num_train_epochs": 3,
    }
    file.write_text(json.dumps(state, indent=2, sort_keys=True) + "\n")
    os.utime(file, (wall, wall))
    return file


def test_each_entry_is_read_once_from_whichever_file_has_it_first(node: Node) -> None:
    history = [train(step) for step in (1, 2, 3)]
    save(node, "checkpoint-3", history, WALL + 10)
    assert node.read()["train/loss"] == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    history += [{"epoch": 0.4, "eval_loss": 0.7, "eval_runtime": 2, "step": 4}, train(5)]
    save(node, "checkpoint-5", history, WALL + 20)
    node.restart_worker()
    node.read()
    save(node, "", [*history, {"train_runtime": 9.5, "note": "text", "is_done": True, "step": 5}], WALL + 30)
    curves = node.read(final=True)
    assert curves.keys() == {
        "train/loss", "train/grad_norm", "train/epoch", "eval/loss", "eval/runtime", "train/train_runtime",
    }  # fmt: skip
    assert curves["train/loss"] == [(step, 1 / step) for step in (1, 2, 3, 5)]
    assert (curves["eval/loss"], curves["train/train_runtime"]) == ([(4, 0.7)], [(5, 9.5)])
    assert [step for step, _ in curves["train/epoch"]] == [1, 2, 3, 4, 5]
    assert str(curves["train/grad_norm"][-1]) == "(5, nan)"


def test_a_file_that_is_being_written_is_read_when_it_is_whole(node: Node) -> None:
    file = save(node, "checkpoint-2", [train(1), train(2)], WALL + 10)
    whole = file.read_text()
    file.write_text(whole[: len(whole) // 2])
    assert node.read() == {}
    file.write_text(whole)
    assert node.read()["train/loss"] == [(1, 1.0), (2, 0.5)]


@pytest.mark.parametrize("text", ["[]", "{}", '{"log_history": 3}', '{"log_history": [1]}', "nonsense"])
def test_another_file_of_that_name_is_left_alone(node: Node, text: str) -> None:
    save(node, "", [], WALL + 10).write_text(text)
    assert node.read(final=True) == {}


def test_trainer_state_of_an_earlier_attempt_is_not_taken(node: Node) -> None:
    save(node, "checkpoint-2", [train(1), train(2)], WALL - 100)
    assert node.read() == {}
    save(node, "checkpoint-3", [train(1), train(2), train(3)], WALL + 10)
    assert node.read(final=True)["train/loss"] == [(3, 1 / 3)]


def test_it_is_silent_where_event_files_have_the_values(node: Node) -> None:
    node.has_event_files = True
    events = PointBatch(
        path="work/events.out.tfevents.1.a", generation=0, start=0, end=9, series={"train/loss": [(1, 1.0, WALL + 9)]}
    )  # fmt: skip
    node.names.stored(events)
    save(node, "checkpoint-3", [train(1), train(2)], WALL + 10)
    assert node.read(final=True) == {} and not (node.folder / SETTINGS_FILE).exists()


def test_it_is_silent_where_the_probe_sees_a_logger(node: Node) -> None:
    folder = node.folder / LOGGERS
    folder.mkdir(parents=True)
    (folder / "runs-12.jsonl").write_text('{"t": 1, "logger": "mlflow", "run": "abc"}\n')
    save(node, "checkpoint-3", [train(1), train(2)], WALL + 10)
    assert node.read(final=True) == {}


def test_it_is_silent_beside_a_store_of_another_logger(node: Node) -> None:
    node.log("loss", 1, 1.0, wall=WALL + 5)
    assert node.read() == {"loss": [(1, 1.0)]}
    save(node, "checkpoint-3", [train(1), train(2)], WALL + 10)
    node.restart_worker()
    assert node.read(final=True) == {"loss": [(1, 1.0)]}


def test_its_settings_are_passed_on(node: Node) -> None:
    save(node, "checkpoint-2", [train(1)], WALL + 10)
    node.read()
    node.read()
    (line,) = (node.folder / SETTINGS_FILE).read_text().splitlines()
    assert json.loads(line)["logger"] == "trainer"
    assert json.loads(line)["settings"] == {"config": {"max_steps": 60, "num_train_epochs": 3}}

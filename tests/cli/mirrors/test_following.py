"""`rankzero mirror --follow` copies a run while it trains, through every absence of the receiver, and ends with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import main
from cli.mirrors import mlflow
from tests.cli.mirrors.receiver import Receiver, receiving
from tests.cli.mirrors.training import LIMIT_S, STEPS, Training, following, points, training
from tests.end_to_end.product import wait_for

__all__ = ["training"]


@pytest.fixture(scope="module")
def on_port() -> bool:
    return True


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def wait_for_parts(receiver: Receiver, count: int, log: Path) -> None:
    wait_for(lambda: len(copied(receiver, "train/loss")) >= count * STEPS, f"{count} parts", LIMIT_S, log.read_text)


def copied(receiver: Receiver, name: str) -> list[tuple[int, float, int]]:
    return receiver.points("run0").get(name, []) if receiver.runs else []


def assert_is_whole(receiver: Receiver, parts: int, status: str | None) -> None:
    """Every point once, in order."""
    wanted = [(step, value, int(wall * 1000)) for part in range(parts) for step, value, wall in points(part)]
    assert copied(receiver, "train/loss") == wanted and copied(receiver, "val/loss") == wanted
    assert len(receiver.runs) == 1 and receiver.runs["run0"].get("status") == status


@pytest.mark.long
def test_a_run_is_followed_until_it_ends(training: Training, receiver: Receiver, tmp_path: Path) -> None:
    training.train()
    with following(training, receiver.url, log := tmp_path / "log") as command:
        wait_for_parts(receiver, 1, log)
        assert command.poll() is None, log.read_text()
        training.train()
        wait_for_parts(receiver, 2, log)
        assert "status" not in receiver.runs["run0"], "it has not ended"
        training.train()
        training.end()
        assert command.wait(LIMIT_S) == 0, log.read_text()
    assert_is_whole(receiver, 3, "FINISHED")
    assert "6 000 points copied" in log.read_text()


@pytest.mark.long
def test_points_logged_without_a_receiver_arrive_once(training: Training, receiver: Receiver, tmp_path: Path) -> None:
    training.train()
    with following(training, receiver.url, log := tmp_path / "log") as command:
        wait_for_parts(receiver, 1, log)
        receiver.leave()
        training.train()
        wait_for(lambda: "did not answer" in log.read_text(), "a word about it", LIMIT_S, log.read_text)
        receiver.mode = "away"
        receiver.come()
        wait_for(lambda: "answered 503" in log.read_text(), "a word about it", LIMIT_S, log.read_text)
        training.train()
        training.end()
        receiver.mode = "loses answers"
        assert command.wait(LIMIT_S) == 0, log.read_text()
    assert_is_whole(receiver, 3, "FINISHED")


def test_a_mirror_that_was_killed_goes_on_where_it_was(training: Training, receiver: Receiver, tmp_path: Path) -> None:
    training.train()
    receiver.answers_after_s = 0.3
    with following(training, receiver.url, log := tmp_path / "log") as command:
        wait_for(lambda: copied(receiver, "train/loss"), "the first points", LIMIT_S, log.read_text)
        command.kill()
        command.wait()
    receiver.answers_after_s = 0.0
    training.train()
    training.end()
    with following(training, receiver.url, log) as command:
        assert command.wait(LIMIT_S) == 0, log.read_text()
    assert_is_whole(receiver, 2, "FINISHED")


def test_a_refusal_ends_it_with_a_sentence_and_nothing_is_lost(
    training: Training, receiver: Receiver, tmp_path: Path
) -> None:
    training.train()
    with following(training, receiver.url, log := tmp_path / "log") as command:
        wait_for_parts(receiver, 1, log)
        receiver.mode = "refuses"
        training.train()
        assert command.wait(LIMIT_S) == 1
        assert "answered 403" in log.read_text() and "not you" in log.read_text()
    receiver.mode = "honest"
    assert main.run(["mirror", training.run_id, "--to", receiver.url]) == 0
    assert_is_whole(receiver, 2, None)


def test_points_whose_answer_comes_too_late_are_not_sent_twice(
    training: Training,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    training.train()
    training.end()
    receiver.answers_after_s = 3.0
    with monkeypatch.context() as hurried:
        hurried.setattr(mlflow, "ANSWER_S", 1.0)
        assert main.run(["mirror", training.run_id, "--to", receiver.url]) == 1
    assert "did not answer (ReadTimeout)" in capsys.readouterr().err
    receiver.answers_after_s = 0.0
    assert main.run(["mirror", training.run_id, "--to", receiver.url]) == 0
    assert_is_whole(receiver, 1, "FINISHED")

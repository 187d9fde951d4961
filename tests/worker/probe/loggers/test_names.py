"""Which points of several loggers are written, and under which names."""

from __future__ import annotations

from worker.probe.rankzero_probe.loggers.names import Names


def test_equal_values_of_two_loggers_are_one_series_in_either_order():
    names = Names()
    assert names.route("wandb", 1, {"loss": 0.1}) == [("loss", 1, 0.1)]
    assert names.route("mlflow", 1, {"loss": 0.1}) == []
    assert names.route("mlflow", 2, {"loss": 0.2}) == []  # waits for W&B's
    assert names.route("wandb", 2, {"loss": 0.2}) == [("loss", 2, 0.2)]
    assert names.remaining() == []


def test_after_a_difference_the_second_is_named_after_its_logger():
    names = Names()
    names.route("wandb", 1, {"loss": 0.1})
    assert names.route("mlflow", 1, {"loss": 9.0}) == [("mlflow:loss", 1, 9.0)]
    assert names.route("mlflow", 2, {"loss": 0.2}) == [("mlflow:loss", 2, 0.2)]
    assert names.route("trackio", 5, {"loss": 5.0}) == []
    assert names.remaining() == [("trackio:loss", 5, 5.0)]


def test_values_of_event_files_are_not_written_again():
    names = Names()
    names.has_event_files = True
    assert names.route("wandb", 1, {"loss": 0.1, "own": 1.0}) == []
    assert names.claim(1, {"loss": 0.10000000149011612}) == []
    assert names.route("wandb", 2, {"loss": 0.2, "own": 2.0}) == [("own", 1, 1.0), ("own", 2, 2.0)]
    assert names.claim(2, {"loss": float("nan")}) == [("wandb:loss", 2, 0.2)]
    assert names.remaining() == []


def test_a_last_point_is_not_lost():
    names = Names()
    names.has_event_files = True
    assert names.route("wandb", 1, {"final": 3.0}) == []
    assert names.remaining() == [("final", 1, 3.0)]
